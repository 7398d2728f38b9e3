// Work shared between threads, for whoever is free.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <atomic>

namespace lapse {

/// Hands a thread's brgemm state back at the end of the scope: bfloat16 tiles are configured per thread on processors
/// with AMX, where the next user must not find ours.
struct BrgemmScope {
  BrgemmScope() = default;
  BrgemmScope(const BrgemmScope&) = delete;
  ~BrgemmScope() { at::native::cpublas::brgemm_release(); }
};

/// Calls f(0), ..., f(n - 1), each once, on as many threads as there are; whoever is free takes the next.
template <class F>
void for_each_task(int64_t n, const F& f) {
  std::atomic<int64_t> next = 0;
  const int64_t threads = std::min<int64_t>(n, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    const BrgemmScope scope;
    for (int64_t i = next++; i < n; i = next++) f(i);
  });
}

}  // namespace lapse
