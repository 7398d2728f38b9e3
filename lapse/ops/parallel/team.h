// Threads that spin while they wait: reading a token takes dozens of steps, each too short for a parallel region of
// its own.
#pragma once

#include <ATen/Parallel.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

namespace lapse {

/// Memory: where it begins, and how much.
struct Region {
  const void* begin = nullptr;
  int64_t bytes = 0;
};

/// The threads of one parallel region: the one that entered it, the head, goes on with its own work; the others
/// wait until it gives them some, and spin for a millisecond or so before they sleep. libtorch's operators run on one
/// thread meanwhile.
class Team {
 public:
  /// Calls f() on this thread as the head of a team of at::get_num_threads() threads. Only f() where there is but one
  /// thread, in a parallel region or in a team.
  template <class F>
  static void with(const F& f);

  /// The team whose head this thread is, unless it is in `run`; else null.
  static Team* current() { return current_; }

  int64_t size() const { return static_cast<int64_t>(members_.size()); }
  /// Calls body(0), ..., body(size - 1), each once: body(0) on this thread, body(i) on the i-th, or on this one if the
  /// i-th is late. Throws what a body threw. `reads`: what body(i) reads first. The next token will read the same, or
  /// something near it: waiting members prefetch what the next call read last time.
  void run(c10::function_ref<void(int64_t)> body, c10::function_ref<Region(int64_t)> reads);

 private:
  static constexpr uint64_t kOver = ~uint64_t{0};
  struct alignas(64) Member {         // a cache line each
    std::atomic<uint64_t> taken = 0;  // the last job of which this member's body was begun
  };

  /// What each call read, by its number since the team began. Only a hint: it is read while it is written.
  class Trail {
   public:
    void set(uint64_t job, int64_t member, const Region& region);
    Region get(uint64_t job, int64_t member) const;
    static Trail& of_thread();

   private:
    static constexpr int64_t kJobs = 512, kMembers = 16;
    struct Entry {
      std::atomic<const void*> begin = nullptr;
      std::atomic<int64_t> bytes = 0;
    };
    std::array<Entry, kJobs * kMembers> entries_;
  };

  explicit Team(int64_t size) : members_(size), trail_(Trail::of_thread()) {}
  void serve(int64_t i);
  void call(int64_t i);
  void publish(uint64_t job);
  uint64_t wait(uint64_t seen, int64_t i) const;

  alignas(64) std::atomic<uint64_t> job_ = 0;  // jobs are numbered 1, 2, ...
  c10::function_ref<void(int64_t)>* body_ = nullptr;
  std::vector<Member> members_;
  Trail& trail_;                                   // of this head's earlier teams
  alignas(64) std::atomic<int64_t> finished_ = 0;  // bodies that members other than the head have done
  std::atomic_flag failed_ = ATOMIC_FLAG_INIT;
  std::exception_ptr error_;

  static thread_local Team* current_;
};

template <class F>
void Team::with(const F& f) {
  const int64_t size = at::get_num_threads();
  if (size == 1 || current_ != nullptr || at::in_parallel_region()) return f();
  Team team(size);
  struct Head {
    Team& team;
    explicit Head(Team& t) : team(t) { current_ = &t; }
    Head(const Head&) = delete;
    ~Head() { team.publish(kOver), current_ = nullptr; }
  };
  // OpenMP may give fewer threads than `size`: one that is missing counts as late.
  at::parallel_for(0, size, 1, [&](int64_t begin, int64_t) {
    if (begin > 0) return team.serve(begin);
    const Head head(team);
    f();
  });
}

}  // namespace lapse
