// One subject under someone's eyes: it goes on at a speed, stops, takes single steps, and goes back to any earlier
// time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lapse/serve/outbox.h"
#include "lapse/serve/subject.h"

namespace lapse {

/// States of a subject at some earlier times: the older, the farther apart, so that n steps keep some log n of them.
class Snapshots {
 public:
  struct One {
    int64_t time;
    std::shared_ptr<const Subject::State> state;
  };
  using Clock = std::chrono::steady_clock;

  /// Adds the state of this time, which is the newest, if it is time for one. `took`: the step that led here.
  void add(const Subject& subject, Clock::duration took = {});
  /// The newest state at this time or before. Error, telling the earliest, if there is none.
  const One& before(int64_t time) const;
  void forget_after(int64_t time);
  /// Leaves out what is older than `keep` steps, but for what is needed to go back so far; the time of the oldest left.
  int64_t forget_before(int64_t now, int64_t keep);
  size_t size() const { return all_.size(); }

  constexpr static int64_t kMost = 1024;  ///< steps between states that are new

 private:
  std::vector<One> all_;     // by ascending time
  Clock::duration took_{0};  // since the newest
};

class Session {
 public:
  using Clock = Snapshots::Clock;

  Session(std::string id, std::unique_ptr<Subject> subject);

  const std::string id;
  const std::shared_ptr<Outbox> outbox;

  /// Goes on for so many steps (0: without end; what was given does not count), at most `speed` a second (0: as fast as
  /// it can).
  void play(int64_t steps, double speed);
  void pause();
  /// Stops, and says why, until it is asked for something else.
  void fail_with(const std::string& message);
  /// One step, whether it plays or not. Error if there is none.
  void step();
  /// Reads what was given to it, without writing more.
  void read();
  /// Back to when `time` steps had been taken. Error if that was too long ago, or lies ahead.
  void undo(int64_t time);
  /// Error while steps are taken again.
  void require_settled() const;
  /// Another subject from now on; what it was given is taken at once.
  void replace(std::unique_ptr<Subject> subject);
  Json row(int64_t time);
  void say_state();

  Subject& subject() { return *subject_; }
  /// Steps taken; an undo on its way counts as done.
  int64_t time() const { return std::max(subject_->time(), quiet_until_); }
  bool playing() const { return playing_; }

  /// When there is something to do next; none: nothing.
  Clock::time_point due() const;
  /// One step of it.
  void turn();

  constexpr static int64_t kKept = 65536;  ///< steps that can be undone, at least

 private:
  void stop();
  void take(bool quiet);
  void mend(bool quiet);
  void announce();

  std::unique_ptr<Subject> subject_;
  Snapshots snapshots_;
  bool playing_ = false;
  bool reading_ = false;  // what was given, and then stops
  int64_t left_ = 0;      // steps of its own; -1: without end
  double speed_ = 0;
  int64_t quiet_until_ = 0;  // steps up to this time were seen before: an undo, or a failure, takes them again
  std::string failure_;      // why it stopped, if a step failed; said again while steps are taken again
  bool named_ = false;       // the names of what methods tell have been said
  Clock::time_point next_ = Clock::now();
};

}  // namespace lapse
