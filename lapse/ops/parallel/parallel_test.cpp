// Tasks that begin on the same thread in every call.
#include "lapse/ops/parallel/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {
namespace {

TEST(Tasks, RunOnceOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3})
    for (const int64_t n : {0, 1, 2, 5, 64, 1001}) {
      const Threads scope(threads);
      std::vector<std::atomic<int>> runs(n);
      for_each_task_again(
          n, [&](int64_t i) { ++runs[i]; }, [](int64_t, int64_t) { return Region(); });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(runs[i], 1) << "task " << i << " of " << n << " on " << threads;
    }
}

}  // namespace
}  // namespace lapse
