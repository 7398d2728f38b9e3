// Work divided among threads: a thread that is free takes the next piece.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "lapse/ops/parallel/team.h"

namespace lapse {

/// Hands a thread's brgemm state back at the end of the scope: bfloat16 tiles are configured per thread on processors
/// with AMX, and the next user must not find our configuration.
struct BrgemmScope {
  BrgemmScope() = default;
  BrgemmScope(const BrgemmScope&) = delete;
  ~BrgemmScope() { at::native::cpublas::brgemm_release(); }
};

/// Calls f(0), ..., f(threads - 1), each once, at the same time if they can be: by the team of this thread, or in a
/// parallel region. reads(i): the memory that f(i) reads first, if it is known.
template <class F, class R>
void on_threads(int64_t threads, const F& f, const R& reads) {
  if (Team* team = threads > 1 ? Team::current() : nullptr; team != nullptr && threads <= team->size())
    return team->run(
        [&](int64_t i) {
          if (i < threads) f(i);
        },
        [&](int64_t i) { return i < threads ? reads(i) : Region(); });
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

/// Calls f(0), ..., f(n - 1), each once, on as many threads as there are; a thread that is free takes the next.
template <class F>
void for_each_task(int64_t n, const F& f) {
  std::atomic<int64_t> next = 0;
  const auto work = [&](int64_t) {
    const BrgemmScope scope;
    for (int64_t i = next++; i < n; i = next++) f(i);
  };
  on_threads(std::min<int64_t>(n, at::get_num_threads()), work, [](int64_t) { return Region(); });
}

/// As for_each_task, but each thread begins with the same share of the tasks in every call of the same n, in order, and
/// only then takes tasks of the others: what a core has read before may still be in its cache. reads(first, count): the
/// memory that so many tasks read, or its beginning.
template <class F, class R>
void for_each_task_again(int64_t n, const F& f, const R& reads) {
  struct alignas(64) Share {  // one cache line
    std::atomic<int64_t> next;
    int64_t end;
  };
  const int64_t threads = std::min<int64_t>(n, at::get_num_threads());
  std::vector<Share> shares(threads);
  for (int64_t t = 0; t < threads; ++t) shares[t].next = n * t / threads, shares[t].end = n * (t + 1) / threads;
  const auto work = [&](int64_t own) {
    for (int64_t t = 0; t < threads; ++t) {
      Share& share = shares[(own + t) % threads];
      for (int64_t i = share.next++; i < share.end; i = share.next++) f(i);
    }
  };
  on_threads(threads, work, [&](int64_t own) {
    const int64_t first = n * own / threads;
    return reads(first, shares[own].end - first);
  });
}

}  // namespace lapse
