#include "lapse/ops/parallel/team.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lapse {
namespace {

/// Waits until `ready` without leaving the core, since most waits are shorter than a system call: a millisecond or so
/// at most. Whether it became ready.
template <class F>
bool spin_until(const F& ready) {
  constexpr int kSpins = 20000;
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  return false;
}

}  // namespace

thread_local Team* Team::current_ = nullptr;

Team::Trail& Team::Trail::of_thread() {
  thread_local Trail trail;
  return trail;
}

void Team::Trail::set(uint64_t job, int64_t member, const Region& region) {
  if (job >= kJobs || member >= kMembers) return;
  Entry& entry = entries_[job * kMembers + member];
  entry.begin.store(region.begin, std::memory_order_relaxed);
  entry.bytes.store(region.bytes, std::memory_order_relaxed);
}

Region Team::Trail::get(uint64_t job, int64_t member) const {
  if (job >= kJobs || member >= kMembers) return {};
  const Entry& entry = entries_[job * kMembers + member];
  return {entry.begin.load(std::memory_order_relaxed), entry.bytes.load(std::memory_order_relaxed)};
}

void Team::publish(uint64_t job) {
  job_.store(job, std::memory_order_release);
  job_.notify_all();
}

void Team::call(int64_t i) {
  try {
    (*body_)(i);
  } catch (...) {
    if (!failed_.test_and_set()) error_ = std::current_exception();
  }
}

// The thread that raises `taken` from the last job to this one runs the body; the head returns from `run`, after which
// the body is gone, only when all are taken and done.
void Team::run(c10::function_ref<void(int64_t)> body, c10::function_ref<Region(int64_t)> reads) {
  const uint64_t job = job_.load(std::memory_order_relaxed) + 1;
  for (int64_t i = 1; i < size(); ++i) trail_.set(job, i, reads(i));
  Team* const self = std::exchange(current_, nullptr);  // a body's own parallel work is not for this team
  body_ = &body;
  finished_.store(0, std::memory_order_relaxed);
  publish(job);
  call(0);
  int64_t others = size() - 1;
  for (int64_t i = 1; i < size(); ++i) {
    uint64_t before = job - 1;
    if (members_[i].taken.compare_exchange_strong(before, job)) call(i), --others;
  }
  const auto done = [&] { return finished_.load(std::memory_order_acquire) == others; };
  while (!spin_until(done)) sched_yield();
  current_ = self;
  if (!failed_.test()) return;
  failed_.clear();
  std::rethrow_exception(std::exchange(error_, nullptr));
}

/// Until there is another job than `seen`: its number. What is prefetched may have been freed; a prefetch never faults.
uint64_t Team::wait(uint64_t seen, int64_t i) const {
  constexpr int64_t kMost = 1 << 19, kLine = 64;  // half of a megabyte of cache, which a core has to itself or nearly
  const Region region = trail_.get(seen + 1, i);
  const auto* from = static_cast<const char*>(region.begin);
  const int64_t bytes = std::min(region.bytes, kMost);
  int64_t done = 0;
  uint64_t job = seen;
  const bool came = spin_until([&] {
    for (const int64_t end = std::min(done + 8 * kLine, bytes); done < end; done += kLine)
      __builtin_prefetch(from + done);
    return (job = job_.load(std::memory_order_acquire)) != seen;
  });
  if (came) return job;
  job_.wait(seen, std::memory_order_acquire);  // asleep
  return job_.load(std::memory_order_acquire);
}

void Team::serve(int64_t i) {
  for (uint64_t seen = 0;;) {
    const uint64_t job = wait(seen, i);
    if (job == kOver) return;
    seen = job;
    uint64_t before = job - 1;
    if (!members_[i].taken.compare_exchange_strong(before, job)) continue;  // too late: the head took it
    call(i);
    finished_.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace lapse
