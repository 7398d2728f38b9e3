#include "lapse/model/likelihood.h"

#include <gtest/gtest.h>

#include "lapse/model/layer.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

Likelihood of(const Tensor& logits, const Tensor& target) {
  const auto [places, right] = scored(target, at::kCPU);
  return likelihood(Tensor(BlockOptions{.places = places}.at_places(logits)), right, {.answers = true, .each = true});
}

TEST(Likelihood, IsOfTheScoredPositions) {
  const Tensor logits = at::randn({2, 3, 5}, at::kDouble).set_requires_grad(true);
  const auto found = of(logits, at::tensor({1, -100, 4, -100, -100, 0}, at::kLong).view({2, 3}));
  const Tensor log = logits.log_softmax(2);
  const Tensor expected = -(log[0][0][1] + log[0][2][4] + log[1][2][0]);
  EXPECT_NEAR(found.nats.item<double>(), expected.item<double>(), 1e-12);
  EXPECT_EQ(found.scored, 3);
  const Tensor best = logits.argmax(2);
  const Tensor right = at::stack({best[0][0] == 1, best[0][2] == 4, best[1][2] == 0});
  EXPECT_TRUE(at::equal(found.right, right));
  const Tensor each = -at::stack({log[0][0][1], log[0][2][4], log[1][2][0]});
  EXPECT_LE((found.each - each).abs().max().item<double>(), 1e-12);
  found.nats.backward();
  EXPECT_EQ(logits.grad()[0][1].abs().sum().item<double>(), 0);
}

TEST(Likelihood, OfAllPositionsNeedsNoPlaces) {
  const Tensor logits = at::randn({2, 3, 5}, at::kDouble);
  const Tensor target = at::randint(5, {2, 3}, at::kLong);
  EXPECT_FALSE(scored(target, at::kCPU).places.defined());
  const auto found = of(logits, target);
  const Tensor expected = -logits.log_softmax(2).gather(2, target.unsqueeze(2)).sum();
  EXPECT_NEAR(found.nats.item<double>(), expected.item<double>(), 1e-12);
  EXPECT_EQ(found.scored, 6);
  const auto bare = likelihood(Tensor(logits), target.flatten(), {});
  EXPECT_FALSE(bare.right.defined() || bare.each.defined());
}

TEST(Likelihood, OfNothingIsNothing) {
  const auto found = of(at::randn({2, 3, 5}), at::full({2, 3}, kNoTarget, at::kLong));
  EXPECT_EQ(found.nats.item<double>(), 0);
  EXPECT_EQ(found.scored, 0);
  EXPECT_EQ(found.right.numel(), 0);
  EXPECT_EQ(found.each.numel(), 0);
}

}  // namespace
}  // namespace lapse
