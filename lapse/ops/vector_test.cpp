// normalise_sum against libtorch's norms in float64, and tasks that keep to their threads.
#include "lapse/ops/vector.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lapse/ops/instruction_set_testing.h"
#include "lapse/ops/ramp_attention_testing.h"
#include "lapse/ops/tasks.h"
#include "lapse/ops/threads_testing.h"

namespace lapse {
namespace {

using at::Tensor;

TEST(NormaliseSum, IsTheNormOfASum) {
  constexpr double kEpsilon = 1e-5;
  for (const int64_t target : InstructionSet::all())
    for (const int64_t n : {1, 5, 16, 67, 256}) {
      const InstructionSet scope(target);
      Random random(n, "norm");
      const Tensor all = random_normal({4, n}, random).to(at::kFloat), wide = all.to(at::kDouble);
      auto of = [&](bool bias) {
        Tensor y = at::empty({n}, at::kFloat);
        auto* line = all.const_data_ptr<float>();
        normalise_sum(line, line + n, line + 2 * n, bias ? line + 3 * n : nullptr, kEpsilon, n,
                      y.mutable_data_ptr<float>());
        return y.to(at::kDouble);
      };
      const Tensor sum = wide[0] + wide[1];
      constexpr double tolerance = 1e-5;  // some roundings of values of up to 10
      EXPECT_LT((of(true) - at::layer_norm(sum, {n}, wide[2], wide[3], kEpsilon)).abs().max().item<double>(), tolerance)
          << "n " << n << ", target " << target;
      EXPECT_LT((of(false) - at::rms_norm(sum, {n}, wide[2], kEpsilon)).abs().max().item<double>(), tolerance)
          << "n " << n << ", target " << target;
    }
}

TEST(Tasks, RunOnceOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3})
    for (const int64_t n : {0, 1, 2, 5, 64, 1001}) {
      const Threads scope(threads);
      std::vector<std::atomic<int>> runs(n);
      for_each_task_again(n, [&](int64_t i) { ++runs[i]; });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(runs[i], 1) << "task " << i << " of " << n << " on " << threads;
    }
}

}  // namespace
}  // namespace lapse
