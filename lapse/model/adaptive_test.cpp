// Adaptive ends: words' vectors by bands, and the likelihood of words through clusters.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/adaptive.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/model/adaptive_input.h"
#include "lapse/model/adaptive_softmax.h"
#include "lapse/model/bands.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kWords = 13, kWidth = 16;

ModelConfig config_of(std::vector<int64_t> cutoffs, bool project_first = false, bool tied = true) {
  ModelConfig config;
  config.width = kWidth, config.adaptive = {std::move(cutoffs), /*factor=*/4, project_first, tied};
  return config;
}

/// Both ends in float64, whose sums round to some 1e-15 of their size.
struct Ends {
  explicit Ends(const ModelConfig& config, int64_t words = kWords) {
    Random random(1, "weights");
    input = adaptive_input(config, words, random);
    output = adaptive_softmax(config, words, *input, random);
    for (auto& [name, tensor] : parameters()) {
      *tensor = tensor->detach().to(at::kDouble).set_requires_grad(true);
      named[name] = *tensor;
    }
  }

  NamedTensors parameters() const {
    NamedTensors all = input->parameters();
    for (auto& parameter : output->parameters()) all.push_back(parameter);
    return all;
  }

  /// Of every word of [B, K].
  Tensor embed(const Tensor& words) const { return input->embed(words); }
  Tensor nats(const Tensor& h, const Tensor& target) const { return output->likelihood(h, target.flatten(), {}).nats; }

  std::unique_ptr<Input> input;
  std::unique_ptr<Output> output;
  std::map<std::string, Tensor> named;
};

Tensor random_h(int64_t rows) { return at::randn({1, rows, kWidth}, at::kDouble); }
Tensor all_words() { return at::arange(kWords, at::kLong).unsqueeze(0); }

TEST(AdaptiveEnds, OfOneBandAreAnEmbeddingAndADenseSoftmax) {
  const Ends ends(config_of({}));
  ASSERT_EQ(ends.named.size(), 1u);
  const Tensor &E = ends.named.at("embedding.0.weight"), h = random_h(kWords), words = all_words();
  EXPECT_TRUE(at::equal(ends.embed(words), E.unsqueeze(0)));
  const Tensor log = at::log_softmax(at::matmul(h, E.t()), 2);
  EXPECT_LE(difference(ends.output->logits(h, false), log), 1e-14);
  const Tensor expected = -log.gather(2, words.unsqueeze(2)).sum();
  EXPECT_LE(difference(ends.nats(h, words), expected), 1e-14);
}

TEST(AdaptiveInput, GivesEachBandItsProjectedRows) {
  for (const bool project_first : {false, true}) {
    const Ends ends(config_of({5, 9}, project_first));
    ASSERT_EQ(ends.named.count("embedding.0.projection"), project_first ? 1u : 0u);
    std::vector<Tensor> rows;
    for (const char* band : {"0", "1", "2"}) {
      const std::string name = std::string("embedding.") + band;
      const Tensor E = ends.named.at(name + ".weight");
      const auto P = ends.named.find(name + ".projection");
      rows.push_back(P == ends.named.end() ? E : at::matmul(E, P->second.t()));
    }
    const Tensor table = lapse::cat(rows), words = at::randint(kWords, {3, 7}, at::kLong);
    EXPECT_LE(difference(ends.embed(words), at::embedding(table, words)), 1e-14);
    const Tensor one = at::full({1, 1}, 11, at::kLong);
    EXPECT_LE(difference(ends.embed(one)[0][0], table[11]), 1e-14);
    EXPECT_EQ(ends.embed(at::zeros({2, 0}, at::kLong)).sizes(), (at::IntArrayRef{2, 0, table.size(1)}));
  }
}

// Fresh weights as docs/equations.md, "Adaptive input and softmax", has them: 4,000 or more draws tell a deviation to 5
// %.
TEST(Bands, BeginWithTheirDeviations) {
  Random random(1, "weights");
  Bands bands(config_of({1000, 2000}, true), 6000, random);
  const auto deviation = [](const Tensor& x) { return x.std().item<double>(); };
  for (const auto& [name, tensor] : bands.parameters("E")) {
    const auto features = static_cast<double>(tensor->size(1));
    if (name.ends_with("weight"))
      EXPECT_NEAR(deviation(*tensor) * std::sqrt(features), 1, 0.05) << name;
    else
      EXPECT_LE(tensor->abs().max().item<double>(), 1 / std::sqrt(features)) << name;
  }
}

// libtorch's own module has h W1^T W2^T in its tails: W1 is P^T, W2 is E.
TEST(AdaptiveSoftmax, IsTorchs) {
  const Ends ends(config_of({5, 9}, false, /*tied=*/false));
  torch::nn::AdaptiveLogSoftmaxWithLoss torch_module(
      torch::nn::AdaptiveLogSoftmaxWithLossOptions(kWidth, kWords, {5, 9}).div_value(4));
  torch_module->to(at::kDouble);
  auto theirs = torch_module->named_parameters();
  const auto E = [&](int band) { return ends.named.at(fmt::format("output.{}.weight", band)); };
  const auto P = [&](int band) { return ends.named.at(fmt::format("output.{}.projection", band)); };
  {
    const at::NoGradGuard no_grad;
    theirs["head.weight"].copy_(lapse::cat({E(0), ends.named.at("output.clusters")}));
    for (const int tail : {0, 1}) {
      theirs[fmt::format("tail.{}.0.weight", tail)].copy_(P(tail + 1).t());
      theirs[fmt::format("tail.{}.1.weight", tail)].copy_(E(tail + 1));
    }
  }
  const Tensor words = lapse::cat({all_words(), at::randint(kWords, {1, 20}, at::kLong)}, 1);
  const Tensor h = random_h(words.numel()).set_requires_grad(true), g = h.detach().clone().set_requires_grad(true);
  EXPECT_LE(difference(ends.output->logits(h, false)[0], torch_module->log_prob(h[0])), 1e-13);
  const Tensor ours = ends.nats(h, words), loss = torch_module->forward(g[0], words[0]).output.sum().neg();
  EXPECT_LE(difference(ours, loss), 1e-13);
  ours.backward(), loss.backward();
  EXPECT_LE(difference(h.grad(), g.grad()), 1e-12);
  const Tensor head = lapse::cat({E(0).grad(), ends.named.at("output.clusters").grad()});
  EXPECT_LE(difference(head, theirs["head.weight"].grad()), 1e-12);
  for (const int tail : {0, 1}) {
    EXPECT_LE(difference(P(tail + 1).grad().t(), theirs[fmt::format("tail.{}.0.weight", tail)].grad()), 1e-12);
    EXPECT_LE(difference(E(tail + 1).grad(), theirs[fmt::format("tail.{}.1.weight", tail)].grad()), 1e-12);
  }
}

TEST(AdaptiveSoftmax, IsADistributionAndItsLikelihood) {
  for (const bool tied : {true, false})
    for (const bool project_first : {true, false}) {
      const Ends ends(config_of({3, 9}, project_first, tied));
      const Tensor h = 3 * random_h(kWords), log = ends.output->logits(h, false);
      EXPECT_LE((log.exp().sum(2) - 1).abs().max().item<double>(), 1e-14);
      const Tensor words = all_words(), target = words.masked_fill(words == 4, kNoTarget);
      const auto [places, right_words] = scored(target, at::kCPU);
      const Tensor at_places = h.flatten(0, 1).index_select(0, places);
      const auto found = ends.output->likelihood(at_places, right_words, {.answers = true, .each = true});
      const Tensor each = -log[0].gather(1, all_words().t()).squeeze(1);
      EXPECT_LE(difference(found.nats, each.sum() - each[4]), 1e-14);
      EXPECT_LE(difference(found.each, each.index_select(0, places)), 1e-14);
      EXPECT_EQ(found.scored, kWords - 1);
      const Tensor right = log[0].argmax(1) == all_words()[0];
      EXPECT_TRUE(at::equal(found.right, right.index_select(0, places)));
    }
}

TEST(AdaptiveSoftmax, ComputesNoTailThatDoesNotOccur) {
  const Ends ends(config_of({5, 9}));
  ends.named.at("embedding.2.weight").detach().fill_(NAN);
  const Tensor h = random_h(4);
  const Tensor frequent = at::tensor({0, 4, 8, 5}, at::kLong).unsqueeze(0), rare = frequent + 4;
  EXPECT_TRUE(std::isfinite(ends.nats(h, frequent).item<double>()));
  EXPECT_FALSE(std::isfinite(ends.nats(h, rare).item<double>()));
}

// Central differences in float64: steps of 1e-6 leave an error of some 1e-9.
TEST(AdaptiveEnds, HaveTheirNumericGradients) {
  for (const bool tied : {true, false}) {
    const Ends ends(config_of({5, 9}, /*project_first=*/true, tied));
    const Tensor words = all_words(), target = words.flip(1);  // every tail has a target
    const auto loss = [&] { return ends.nats(at::tanh(ends.embed(words)), target); };
    loss().backward();
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : ends.named) {
      Tensor values = tensor.detach().flatten(), expected = at::empty_like(values);
      for (int64_t i = 0; i < values.numel(); ++i) {
        const double step = 1e-6, before = values[i].item<double>();
        values[i].fill_(before + step);
        const double above = loss().item<double>();
        values[i].fill_(before - step);
        expected[i].fill_((above - loss().item<double>()) / (2 * step));
        values[i].fill_(before);
      }
      EXPECT_LE(difference(tensor.grad().flatten(), expected), 1e-7) << name;
    }
  }
}

TEST(AdaptiveEnds, ReadInBfloat16) {
  ModelConfig config = tiny_config("post");
  config.width = 16, config.heads = 4, config.input = config.output = "adaptive";
  config.adaptive.cutoffs = {4, 8};
  for (const bool tied : {true, false}) {
    config.adaptive.tied = tied;
    const auto model = tiny_model(config, *method_options("fixed_span"), at::kFloat);
    const Tensor tokens = random_tokens(2, 3 * kBlock);
    const Tensor expected = run(*model, /*training=*/false, tokens, {kBlock, kBlock, kBlock});
    model->to_bfloat16();
    EXPECT_LE(difference(run(*model, false, tokens, {kBlock, kBlock, kBlock}), expected), 0.02);  // 8 bits a number
  }
}

TEST(AdaptiveEnds, RefuseWhatDoesNotFit) {
  const auto make = [](ModelConfig config, int64_t words, int64_t outputs) {
    Random random(1, "weights");
    const auto input = adaptive_input(config, words, random);
    adaptive_softmax(config, outputs, *input, random);
  };
  const auto refused = [&](const ModelConfig& config, const char* words) {
    EXPECT_THAT([&] { make(config, kWords, kWords); }, ThrowsMessage<Error>(HasSubstr(words)));
  };
  for (const auto& cutoffs : std::vector<std::vector<int64_t>>{{9, 5}, {5, 5}, {0, 5}, {-1}})
    refused(config_of(cutoffs), "each larger than the one before it");
  for (const auto& cutoffs : std::vector<std::vector<int64_t>>{{5, 13}, {99}})
    refused(config_of(cutoffs), "smaller than the vocabulary, which has 13 words");
  refused(config_of({2, 4, 6}), "model.width = 16 does not divide by adaptive.factor = 4");
  EXPECT_NO_THROW(make(config_of({5, 12}), kWords, kWords));
  EXPECT_THAT([&] { make(config_of({5}), kWords, 7); }, ThrowsMessage<Error>(HasSubstr("adaptive.tied = false")));
  EXPECT_NO_THROW(make(config_of({5}, false, /*tied=*/false), kWords, 7));
}

}  // namespace
}  // namespace lapse
