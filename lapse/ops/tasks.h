// Work shared between threads, for whoever is free.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace lapse {

/// Calls f(0), ..., f(n - 1), each once, on as many threads as there are; whoever is free takes the next.
template <class F>
void for_each_task(int64_t n, const F& f) {
  std::atomic<int64_t> next = 0;
  const int64_t threads = std::min<int64_t>(n, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < n; i = next++) f(i);
  });
}

}  // namespace lapse
