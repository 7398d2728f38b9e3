#include "lapse/ops/dense/dropout.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

TEST(Dropout, ScalesWhatItKeepsAndIsOfTheSeed) {
  const at::Tensor x = at::ones({100, 100});
  const at::Tensor y = dropped(x, {0.25, 5});
  EXPECT_TRUE(at::logical_or(y == 0, y == 1 / 0.75f).all().item<bool>());
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.03);  // of 10,000 draws: 5 standard deviations of 0.6 %
  EXPECT_TRUE(y.equal(dropped(x, {0.25, 5})));
  EXPECT_FALSE(y.equal(dropped(x, {0.25, 6})));
}

TEST(Dropout, DrawsEachElementOnItsOwn) {
  const int64_t n = 200'001;
  const at::Tensor kept = dropped(at::ones({n}), {0.3, 7}) > 0;
  for (const int64_t step : {1, 2, 64}) {  // neighbours, halves of the same bits or not
    const auto both = at::logical_and(kept.narrow(0, 0, n - step), kept.narrow(0, step, n - step));
    EXPECT_NEAR(both.to(at::kFloat).mean().item<double>(), 0.49, 0.006) << step;  // 5 standard deviations
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(kept.equal(dropped(at::ones({n}), {0.3, 7}) > 0)) << "whatever the number of threads";
  at::set_num_threads(threads);
  EXPECT_TRUE(kept.equal(dropped(at::ones({n}, at::kDouble), {0.3, 7}) > 0)) << "whatever the type";
  EXPECT_EQ(dropped(at::ones({0}), {0.3, 7}).numel(), 0);
  EXPECT_EQ(dropped(at::ones({n}, at::kBFloat16), {0.3, 7}).scalar_type(), at::kBFloat16);
}

/// The formula, one element after the other.
at::Tensor exact(const at::Tensor& x, double p, uint64_t seed) {
  const at::Tensor y = x.contiguous().clone();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint64_t bits = mix64(mix64(seed) + static_cast<uint64_t>(i / 2)),
                   half = i % 2 == 0 ? bits << 32 >> 32 : bits >> 32;
    y.mutable_data_ptr<float>()[i] *=
        static_cast<double>(half) >= std::ldexp(p, 32) ? static_cast<float>(1 / (1 - p)) : 0;
  }
  return y;
}

TEST(Dropout, IsTheFormulaOnEveryInstructionSet) {
  for (const int64_t set : InstructionSet::all())
    for (const uint64_t n : {1, 2, 17, 255, 257, (1 << 14) + 1}) {
      const InstructionSet scope(set);
      const at::Tensor x = at::randn({static_cast<int64_t>(n)});
      for (const double p : {0.1, 0.5, 0.99}) EXPECT_TRUE(dropped(x, {p, n}).equal(exact(x, p, n))) << n << ", p " << p;
    }
}

TEST(Dropout, ItsGradientHasTheSameDraws) {
  const at::Tensor x = at::randn({6, 35}).t().requires_grad_();  // in another order than it lies in memory
  for (const at::Tensor& dy : {at::randn({6, 35}).t(), at::full({1}, 2.f).expand({35, 6})}) {
    const at::Tensor y = dropped(x, {0.3, 4});
    EXPECT_TRUE(y.equal(exact(x.detach(), 0.3, 4)));
    const auto dx = torch::autograd::grad({y}, {x}, {dy})[0];
    EXPECT_TRUE(dx.equal(exact(dy, 0.3, 4)));
  }
  EXPECT_FALSE(dropped(x.detach(), {0.3, 4}).requires_grad());
  // What is dropped is multiplied by 0: NaN does not vanish.
  EXPECT_TRUE(dropped(at::full({100}, NAN), {0.5, 1}).isnan().all().item<bool>());
}

TEST(Dropout, DrawsManyAtATimeOnEveryDevice) {
  const at::Tensor x = at::ones({(int64_t{1} << 23) + 3});  // more than are drawn at once
  EXPECT_TRUE(dropped(x.to(second_device()), {0.3, 9}).to(at::kCPU).equal(dropped(x, {0.3, 9})));
}

TEST(Dropout, DrawsTheSameOnEveryDevice) {
  const at::Tensor x = at::arange(60, at::kFloat).view({3, 20}).t();
  const at::Tensor there = dropped(x.to(second_device()), {0.5, 5});
  EXPECT_EQ(there.device(), second_device());
  EXPECT_TRUE(there.to(at::kCPU).equal(dropped(x, {0.5, 5})));
}

}  // namespace
}  // namespace lapse
