// The loss of softmax against libtorch's in float64, and its gradient, which takes the logits' place.
#include "lapse/ops/dense/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {
namespace {

using at::Tensor;

Tensor normal(at::IntArrayRef shape, Random& random) { return random_normal(shape, random).to(at::kFloat); }

Tensor libtorchs(const Tensor& logits, const Tensor& target) {
  return at::cross_entropy_loss(logits, target, {}, at::Reduction::None);
}

/// The loss of each row, and the logits' gradient for the gradient dy of the losses.
template <class F>
std::vector<Tensor> derive(const F& f, const Tensor& logits, const Tensor& target, const Tensor& dy) {
  const Tensor x = logits.detach().requires_grad_();
  const Tensor y = f(x * 1, target);  // not x itself: it is to keep its values
  y.backward(dy);
  return {y.detach(), x.grad()};
}
std::vector<Tensor> ours(const Tensor& logits, const Tensor& target, const Tensor& dy) {
  return derive([](Tensor&& x, const Tensor& t) { return cross_entropy(std::move(x), t); }, logits, target, dy);
}

void expect_libtorchs(const Tensor& logits, const Tensor& target, const Tensor& dy) {
  const auto got = ours(logits, target, dy);
  const auto wanted = derive(libtorchs, logits.to(at::kDouble), target, dy.to(at::kDouble));
  // A logit's own rounding, and that of the sum of up to a thousand exponentials.
  EXPECT_TRUE(at::allclose(got[0].to(at::kDouble), wanted[0], 3e-7, 2e-6));
  EXPECT_TRUE(at::allclose(got[1].to(at::kDouble), wanted[1], 1e-5, 1e-6));
}

TEST(CrossEntropy, IsLibtorchs) {
  for (const int64_t set : InstructionSet::all())
    for (const int64_t V : {1, 5, 16, 67, 1000})
      for (const int64_t P : {0, 1, 3, 65, 200}) {
        SCOPED_TRACE("V " + std::to_string(V) + ", P " + std::to_string(P));
        const InstructionSet scope(set);
        Random random(V, "logits");
        const Tensor target = at::arange(P, at::kLong) * 7 % V, dy = normal({P}, random);
        const Tensor x = normal({P, V}, random);
        expect_libtorchs(x, target, dy);
        expect_libtorchs(x * 30 + 1000, target, dy);  // far from 0, and most exponentials are 0
      }
}

TEST(CrossEntropy, ReadsAnyLayoutOnAnyNumberOfThreads) {
  Random random(1, "logits");
  const Tensor x = normal({67, 640}, random).t();
  const Tensor target = at::arange(1280, at::kLong).remainder(67).slice(0, 0, 1280, 2);
  for (const Tensor& dy : {normal({1280}, random).slice(0, 0, 1280, 2), at::full({1}, 0.3).expand({640})}) {
    expect_libtorchs(x, target, dy.to(at::kFloat));
    std::vector<std::vector<Tensor>> results;
    for (const int threads : {1, 2}) {
      const Threads scope(threads);
      results.push_back(ours(x, target, dy.to(at::kFloat)));
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(results[0][i].equal(results[1][i])) << "result " << i;
  }
}

TEST(CrossEntropy, ItsGradientTakesTheLogitsPlace) {
  const Tensor x = at::randn({3, 8}).requires_grad_(), target = at::tensor({1, 0, 7}, at::kLong);
  const Tensor logits = x * 2;
  const auto* place = logits.const_data_ptr<float>();
  Tensor given = logits;
  const Tensor sum = cross_entropy(std::move(given), target).sum();
  Tensor gradient;
  logits.register_hook([&](const Tensor& found) { gradient = found; });
  sum.backward({}, true);
  EXPECT_EQ(gradient.const_data_ptr<float>(), place);
  EXPECT_THROW(sum.backward(), c10::Error);  // they are gone
  const Tensor kept_by_tanh = cross_entropy(at::tanh(x), target).sum();
  EXPECT_THROW(kept_by_tanh.backward(), c10::Error);  // its gradient needs its result

  // Without a gradient they stay.
  const at::NoGradGuard no_grad;
  Tensor kept = x.detach().clone();
  cross_entropy(Tensor(kept), target);
  EXPECT_TRUE(kept.equal(x));
}

TEST(CrossEntropy, WhatHasDivergedIsNotFinite) {
  const at::NoGradGuard no_grad;
  for (const float bad : {NAN, INFINITY})
    for (const int64_t at : {0, 3, 20, 66}) {
      Tensor x = at::zeros({1, 67});
      x[0][at] = bad;
      EXPECT_FALSE(std::isfinite(cross_entropy(std::move(x), at::zeros({1}, at::kLong)).item<float>())) << bad << at;
    }
  Tensor impossible = at::zeros({1, 67});
  impossible[0][2] = -INFINITY;
  EXPECT_EQ(cross_entropy(Tensor(impossible), at::full({1}, 2, at::kLong)).item<float>(), INFINITY);
  EXPECT_NEAR(cross_entropy(Tensor(impossible), at::zeros({1}, at::kLong)).item<float>(), std::log(66.), 1e-6);
}

TEST(CrossEntropy, LeavesFloat64ToLibtorch) {
  const Tensor x = at::randn({3, 8}, at::kDouble), target = at::tensor({1, 0, 7}, at::kLong);
  EXPECT_TRUE(cross_entropy(Tensor(x), target).equal(libtorchs(x, target)));
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor x = at::randn({3, 8});
  const auto refused = [&](const Tensor& target) { EXPECT_THROW(cross_entropy(Tensor(x), target), c10::Error); };
  refused(at::tensor({1, 0}, at::kLong));
  refused(at::tensor({1, 0, 8}, at::kLong));
  refused(at::tensor({1, 0, -100}, at::kLong));
  refused(at::tensor({1, 0, 7}, at::kInt));
  EXPECT_THROW(cross_entropy(at::randn({8}), at::zeros({8}, at::kLong)), c10::Error);
}

}  // namespace
}  // namespace lapse
