// Selective attention in a model: what it equals, its budgets and its cost. The operator is tested in ops/.
#include "lapse/ops/attention/selective/selective_attention.h"

#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/read/prune.h"

namespace lapse {
namespace {

using at::Tensor;

/// The base model of the paper's section 5, or our own.
ModelConfig config(bool own) {
  ModelConfig config = tiny_config(own ? "pre" : "post");
  if (!own) return config;
  config.norm_kind = "rms", config.activation = "swiglu", config.positions = "absolute";
  config.biases = false, config.normed_heads = config.attend_self = true;
  return config;
}

std::unique_ptr<Transformer> selective(bool own, Settings settings, int64_t block = 40) {
  const auto options = method_options("selective_attention", std::move(settings));
  auto model = std::make_unique<Transformer>(config(own), *options, kVocabulary, block, Random(1, "weights"));
  model->to(at::kDouble);
  return model;
}

const Tensor kTokens = random_tokens(3, 40);

TEST(SelectiveAttention, WithoutSelectionIsStandardAttention) {
  for (const bool own : {true, false}) {
    const auto model = selective(own, {{"separate", "true"}, {"max_span", "41"}});
    ModelConfig plain = config(own);
    plain.attend_self = true;
    const auto options = method_options("fixed_span", {{"max_span", "40"}});
    Transformer standard(plain, *options, kVocabulary, 40, Random(1, "other"));
    standard.to(at::kDouble);
    std::map<std::string, Tensor*> ours;
    for (auto& [name, tensor] : model->parameters()) {
      ours[name] = tensor;
      if (name.ends_with("select.query")) tensor->detach().zero_();
    }
    for (auto& [name, tensor] : standard.parameters()) tensor->detach().copy_(*ours.at(name));
    EXPECT_LE(difference(run(*model, false, kTokens, {40}), run(standard, false, kTokens, {40})), 1e-12);
    EXPECT_LE(difference(run(*model, true, kTokens, {40}), run(standard, true, kTokens, {40})), 1e-12);
  }
}

TEST(SelectiveAttention, ABudgetOfTheContextChangesNothing) {
  for (const bool own : {true, false}) {
    const auto model = selective(own, {{"max_span", "40"}});
    const Tensor free = run(*model, false, kTokens, {40});
    set_budgets(*model, {40, 40});
    EXPECT_TRUE(run(*model, false, kTokens, {40}).equal(free));
    set_budgets(*model, {6, 6});
    EXPECT_GT(difference(run(*model, false, kTokens, {40}), free), 1e-6);
  }
}

// What is dropped is really released, and token by token the same is dropped as at once.
TEST(SelectiveAttention, HoldsNoMoreThanItsBudget) {
  for (const char* separate : {"false", "true"})
    for (const bool own : {true, false}) {
      const auto model = selective(own, {{"separate", separate}, {"max_span", "30"}});
      set_budgets(*model, {7, 7});
      const Tensor whole = run(*model, false, kTokens, {40});
      EXPECT_LE(difference(run(*model, false, kTokens, std::vector<int64_t>(40, 1)), whole), 1e-10);
      EXPECT_LE(difference(run(*model, false, kTokens, {8, 1, 1, 13, 5, 12}), whole), 1e-10);
      at::NoGradGuard no_grad;
      ModelMemory memory = model->begin(3, Stored::projections);
      for (int64_t t = 0; t < 40; ++t) {
        const auto y = model->forward(kTokens.narrow(1, t, 1), memory, {.observe = true});
        for (const auto& report : y.reports) EXPECT_EQ(report.memory_max, std::min<int64_t>(t + 1, 7));
        for (const auto& table : memory.layers) EXPECT_LE(table.rows(), 3 * 7);
      }
    }
}

TEST(SelectiveAttention, StreamsOnTheRelativeModelAndEndsOnTheAbsoluteOne) {
  const auto stream = selective(false, {{"max_span", "9"}});
  const Tensor tokens = random_tokens(2, 200);
  EXPECT_LE(difference(run(*stream, false, tokens, {200}), run(*stream, false, tokens, std::vector<int64_t>(25, 8))),
            1e-10);
  const auto windows = selective(true, {});
  try {
    run(*windows, false, tokens, {40, 1});
    FAIL() << "a window of 40 took a token more";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("windows of 40 tokens"), std::string::npos) << error.what();
  }
}

// epsilon / (layers n) of the largest M_t, which a token that masks nothing has as the number of tokens it reads.
TEST(SelectiveAttention, CostsTheMemoryItHolds) {
  const auto model = selective(true, {{"separate", "true"}, {"memory_loss", "0.1"}, {"max_span", "64"}});
  for (auto& [name, tensor] : model->parameters())
    if (name.ends_with("select.query")) tensor->detach().zero_();
  ModelMemory memory = model->begin(3, Stored::inputs);
  const auto free = model->forward(kTokens, memory, {});
  EXPECT_NEAR(free.cost.item<double>(), 0.1, 1e-9);  // max M_t = n in every layer
  const auto masked = selective(true, {{"memory_loss", "0.1"}, {"max_span", "64"}});
  memory = masked->begin(3, Stored::inputs);
  const auto y = masked->forward(kTokens, memory, {});
  EXPECT_LT(y.cost.item<double>(), 0.1);
  y.cost.backward();
  for (auto& [name, tensor] : masked->parameters()) {
    if (name != "layers.1.query")
      continue;  // nothing but the cost reads the last layer: only head 0, which selects, learns
    const Tensor heads = tensor->grad().view({3, 4, 12}).abs().sum({1, 2});
    EXPECT_GT(heads[0].item<double>(), 0);
    EXPECT_EQ(heads[1].item<double>() + heads[2].item<double>(), 0);
  }
}

// Padding on the right has no part in it: a padded batch costs the mean of its sequences alone.
TEST(SelectiveAttention, CostsNothingForPadding) {
  const auto model = selective(true, {{"memory_loss", "0.1"}, {"max_span", "64"}});
  const std::vector<int64_t> lengths = {40, 13, 1};
  double mean = 0;
  for (int64_t b = 0; b < 3; ++b) {
    ModelMemory memory = model->begin(1, Stored::inputs);
    const Tensor alone = kTokens.narrow(0, b, 1).narrow(1, 0, lengths[b]);
    mean += model->forward(alone, memory, {}).cost.item<double>() / 3;
  }
  ModelMemory memory = model->begin(3, Stored::inputs);
  const auto y = model->forward(kTokens, memory, {.lengths = at::tensor(lengths, at::kLong)});
  EXPECT_NEAR(y.cost.item<double>(), mean, 1e-12);
  y.cost.backward();
  for (auto& [name, tensor] : model->parameters())
    EXPECT_TRUE(!tensor->grad().defined() || tensor->grad().isfinite().all().item<bool>()) << name;
}

}  // namespace
}  // namespace lapse
