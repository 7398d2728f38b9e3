#include "lapse/train/actor_critic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/train/agent_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kAgents = 3, kSteps = 7;

struct Loss {
  double policy = 0, value = 0, entropy = 0;
};

/// Summed over steps, one after the other, in double.
Loss loss_of(const Tensor& y, const Tensor& actions, const Tensor& returns, const Tensor& advantages) {
  Loss all;
  for (int64_t b = 0; b < y.size(0); ++b)
    for (int64_t t = 0; t < y.size(1); ++t) {
      double sum = 0, entropy = 0;
      const auto out = [&](int64_t i) { return y[b][t][i].item<double>(); };
      for (int64_t a = 0; a < kActions; ++a) sum += std::exp(out(a));
      for (int64_t a = 0; a < kActions; ++a) entropy -= std::exp(out(a)) / sum * (out(a) - std::log(sum));
      const double error = returns[b][t].item<double>() - out(kActions);
      all.policy -= (out(actions[b][t].item<int64_t>()) - std::log(sum)) * advantages[b][t].item<double>();
      all.value += error * error, all.entropy += entropy;
    }
  return all;
}

Batch random_batch() {
  Random random(1, "batch");
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(n)); };
  Tensor input = at::full({kAgents, kSteps, kCells * kWords}, -1, at::kLong),
         target = at::zeros({kAgents, kSteps}, at::kLong), returns = at::zeros({kAgents, kSteps});
  for (int64_t b = 0; b < kAgents; ++b)
    for (int64_t t = 0; t < kSteps; ++t) {
      input[b][t][0].fill_(below(kCells * kWords)), target[b][t].fill_(below(kActions));
      returns[b][t].fill_(random.normal());
    }
  Batch batch(input, target);
  batch.more["returns"] = returns;
  return batch;
}

// Values and gradients: of the output's bias by differences of the loss, the advantage held fixed.
TEST(ActorCritic, IsTheLossAsWrittenAndItsGradient) {
  // 0.14 (1 - 0.625 (1 - 0.2)) = 0.07
  const ActorCriticConfig config{.value_loss = 0.3, .entropy = 0.14, .entropy_last = 0.2};
  const auto model = tiny_agent("expire_span");
  const Batch batch = random_batch();
  const auto objective = actor_critic(config);
  ModelMemory memory = model->begin(kAgents, Stored::inputs);
  PartLoss part = objective->read(*model, memory, batch, {.done = 0.625}, {}, {});
  ModelMemory again = model->begin(kAgents, Stored::inputs);
  const Tensor y = model->forward(batch.input, again, {}).logits.detach().to(at::kDouble);
  const Tensor returns = batch.more.at("returns"), advantages = returns - y.select(-1, kActions);
  const auto total = [&](const Tensor& outputs) {
    const Loss loss = loss_of(outputs, batch.target, returns, advantages);
    return (loss.policy + config.value_loss * loss.value - 0.07 * loss.entropy) / (kAgents * kSteps);
  };
  EXPECT_NEAR(part.loss.item<double>(), total(y), 1e-5);
  EXPECT_NEAR(part.value.item<double>(), total(y) + part.cost.item<double>(), 1e-5);
  const Loss expected = loss_of(y, batch.target, returns, advantages);
  for (const auto& [name, sum] : part.sums) {
    const double wanted = name == "policy_loss"  ? expected.policy
                          : name == "value_loss" ? expected.value
                                                 : expected.entropy;
    EXPECT_NEAR(sum.item<double>(), wanted, 1e-4) << name;
  }
  EXPECT_EQ(part.sums.size(), 3);
  part.loss.backward();
  for (auto& [name, parameter] : model->parameters()) {
    if (name != "output.bias") continue;
    for (int64_t i = 0; i <= kActions; ++i) {
      constexpr double step = 1e-5;
      Tensor more = y.clone(), less = y.clone();
      more.select(-1, i) += step, less.select(-1, i) -= step;
      EXPECT_NEAR(parameter->grad()[i].item<double>(), (total(more) - total(less)) / (2 * step), 1e-5);
    }
  }
}

TEST(ActorCritic, ReturnsEndWithEpisodes) {
  const float rewards[] = {1, 2, 4, 8};
  const bool ends[] = {false, true, false, false};
  float returns[4];
  discounted_returns(rewards, ends, 4, 16, 0.5, returns);
  EXPECT_THAT(returns, testing::ElementsAre(2, 2, 12, 16));
  const bool ended[] = {true, true, true, true};
  discounted_returns(rewards, ended, 4, 16, 0.5, returns);
  EXPECT_THAT(returns, testing::ElementsAre(1, 2, 4, 8));
}

}  // namespace
}  // namespace lapse
