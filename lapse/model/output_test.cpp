#include "lapse/model/output.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "lapse/forgetting/registry.h"
#include "lapse/model/input.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

ModelConfig small() {
  ModelConfig config;
  config.width = 8, config.layers = 4, config.heads = 2, config.feed_forward = 12;
  return config;
}

std::vector<std::pair<ModelConfig, MethodEntry>> with_methods(const std::vector<ModelConfig>& configs) {
  std::vector<std::pair<ModelConfig, MethodEntry>> all;
  for (const auto& config : configs)
    for (const auto& method : method_table()) all.emplace_back(config, method);
  return all;
}

// With a target, forward gives what its logits would have cost, for every method and path.
TEST(Output, LikelihoodIsThatOfTheLogits) {
  const Tensor tokens = at::randint(13, {3, 5}, at::kLong);
  const Tensor all = at::randint(13, {3, 5}, at::kLong);
  const Tensor some = all.masked_fill(at::rand({3, 5}) < 0.5, kNoTarget);
  ModelConfig adaptive = small();
  adaptive.input = adaptive.output = "adaptive", adaptive.adaptive = {.cutoffs = {4, 9}, .factor = 2};
  for (const auto& [config, method] : with_methods({small(), adaptive})) {
    const auto options = method.options();
    Transformer model(config, *options, 13, 5, Random(1, "weights"));
    for (const bool training : {true, false}) {
      at::AutoGradMode gradients(training);
      for (const Tensor& target : {all, some}) {
        auto memory = model.begin(3, stored_of(training)), again = model.begin(3, stored_of(training));
        const Tensor logits = model.forward(tokens, memory, {}).logits;
        const auto y = model.forward(tokens, again, {.target = target, .answers = true});
        EXPECT_FALSE(y.logits.defined());
        const Tensor scored = (target != kNoTarget).flatten();
        const Tensor log = logits.log_softmax(2).flatten(0, 1);
        const Tensor expected =
            -log.gather(1, target.clamp_min(0).flatten().unsqueeze(1)).squeeze(1).masked_select(scored).sum();
        EXPECT_NEAR(y.likelihood.nats.item<double>(), expected.item<double>(), 1e-4) << method.name;
        EXPECT_EQ(y.likelihood.scored, scored.sum().item<int64_t>());
        const Tensor right = (logits.argmax(2) == target).flatten().masked_select(scored);
        EXPECT_TRUE(at::equal(y.likelihood.right, right)) << method.name;
        EXPECT_EQ(y.likelihood.nats.requires_grad(), training);
      }
    }
  }
}

TEST(Output, HasABiasOnlyWhereTheModelHas) {
  Random random(1, "weights");
  ModelConfig config = small();
  EXPECT_EQ(softmax_output(config, 7, random)->parameters().size(), 2u);
  config.biases = false;
  const auto output = softmax_output(config, 7, random);
  ASSERT_EQ(output->parameters().size(), 1u);
  const Tensor h = at::randn({2, 3, 8}), &weight = *output->parameters()[0].second;
  EXPECT_TRUE(at::allclose(output->logits(h, false), at::matmul(h, weight.t()), 1e-5, 1e-6));
}

}  // namespace
}  // namespace lapse
