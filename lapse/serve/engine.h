// The one thread that computes. It takes turns: a step of each session that plays, of each job, and what it was called
// for in between.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lapse/serve/library.h"
#include "lapse/serve/session.h"

namespace lapse {

/// Work that is done in small steps.
class Job {
 public:
  virtual ~Job() = default;
  /// One step; false: it was the last. It must not throw.
  virtual bool turn() = 0;
  /// When it wants its next step, as Session::due.
  virtual Session::Clock::time_point due() const { return Session::Clock::time_point::min(); }
};

class Engine {
 public:
  explicit Engine(Library& library) : library_(library) {}
  Engine(const Engine&) = delete;

  /// Computes on this thread, until `stop`. The program's first thread is the fastest: a model's memory grows and goes
  /// with every token, and malloc serves other threads from arenas of 64 MB.
  void run();
  void stop();

  /// Runs `work` on that thread, and waits for it; what it throws is thrown here.
  template <class Work>
  auto call(Work work) -> decltype(work()) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    post([&task] { task(); });
    return result.get();
  }
  /// As `call`, but nobody waits.
  void post(std::function<void()> work);

  // --- within `call` or `post`
  Library& library() { return library_; }
  /// Failure (503) if there are too many.
  Session& add(std::unique_ptr<Subject> subject);
  void add(std::shared_ptr<Job> job);
  /// Null if there is none.
  Session* find(const std::string& id);
  void remove(const std::string& id);
  /// Someone reads its events. False: someone else does already.
  bool attach(const std::string& id);
  int64_t sessions() const { return std::ssize(sessions_); }
  int64_t jobs() const { return std::ssize(jobs_); }

  constexpr static int64_t kSessions = 16, kJobs = 8;
  constexpr static std::chrono::seconds kUnread{10};  ///< a session whose events nobody reads lives so long

 private:
  struct Held {
    std::unique_ptr<Session> session;
    bool attached = false;
    Session::Clock::time_point born = Session::Clock::now();
  };
  void compute();
  void end();
  void work();  // what was posted
  Session::Clock::time_point take_turns();

  Library& library_;
  std::map<std::string, Held> sessions_;
  std::vector<std::shared_ptr<Job>> jobs_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> posted_;
  bool stopping_ = false;
};

}  // namespace lapse
