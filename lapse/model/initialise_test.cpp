// Fresh weights have the distributions that docs/equations.md gives ("Initialisation").
#include "lapse/nn/initialise.h"

#include <gtest/gtest.h>

#include <set>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kWidth = 48, kInner = 80, kLayers = 3, kTokens = 200, kWindow = 60;

ModelConfig config_of(const std::string& norm, const std::string& initialisation) {
  ModelConfig config;
  config.width = kWidth, config.layers = kLayers, config.heads = 4, config.head_dim = 16, config.feed_forward = kInner;
  config.norm = norm, config.initialisation = initialisation;
  return config;
}

std::map<std::string, Tensor> weights_of(const ModelConfig& config, const MethodOptions& method, uint64_t seed = 1) {
  Transformer model(config, method, kTokens, kWindow, Random(seed, "weights"));
  std::map<std::string, Tensor> all;
  for (auto& [name, tensor] : model.parameters()) all[name] = tensor->detach().to(at::kDouble).flatten();
  return all;
}

std::map<std::string, Tensor> weights_of(const ModelConfig& config, uint64_t seed = 1) {
  return weights_of(config, *method_options("fixed_span"), seed);
}

double fraction_beyond(const Tensor& x, double limit) {
  return (x.abs() > limit).to(at::kDouble).mean().item<double>();
}

/// Five standard deviations of a share of n draws.
double spread(double share, int64_t n) { return 5 * std::sqrt(share * (1 - share) / static_cast<double>(n)); }

void expect_normal(const Tensor& x, double deviation) {
  const auto n = x.numel();
  EXPECT_NEAR(x.mean().item<double>(), 0, 5 * deviation / std::sqrt(n));
  for (const auto& [times, share] : {std::pair(1., 0.3173), {2., 0.0455}})
    EXPECT_NEAR(fraction_beyond(x, times * deviation), share, spread(share, n)) << times;
}

void expect_uniform(const Tensor& x, double bound) {
  const auto n = x.numel();
  EXPECT_LE(x.abs().max().item<double>(), bound * (1 + 1e-6));
  EXPECT_NEAR(x.mean().item<double>(), 0, 5 * bound / std::sqrt(3. * n));
  for (const double share : {0.5, 0.1, 0.02})
    EXPECT_NEAR(fraction_beyond(x, (1 - share) * bound), share, spread(share, n));
}

TEST(Initialisation, EmbeddingsAreNormal) {
  ModelConfig config = config_of("pre", "default");
  auto weights = weights_of(config);
  expect_normal(weights.at("embedding"), 1);
  expect_normal(weights.at("position"), 1);
  config.positions = "absolute";
  weights = weights_of(config);
  EXPECT_EQ(weights.at("position").numel(), kWindow * kWidth);
  expect_normal(weights.at("position"), 0.1);
}

// U(+-1 / sqrt(fan-in)), or with Glorot's U(+-sqrt(6 / (in + out))) for weights; what a pre-norm layer adds starts
// divided by sqrt(2 layers).
TEST(Initialisation, LinearWeightsAreUniform) {
  for (const char* norm : {"post", "pre"})
    for (const bool glorot : {false, true}) {
      SCOPED_TRACE(testing::Message() << norm << (glorot ? ", glorot" : ""));
      const auto weights = weights_of(config_of(norm, glorot ? "glorot" : "default"));
      const double less = norm == std::string("pre") ? std::sqrt(2. * kLayers) : 1;
      const auto bound = [&](int64_t in, int64_t out) {
        return glorot ? std::sqrt(6. / (in + out)) : 1 / std::sqrt(in);
      };
      for (int64_t l = 0; l < kLayers; ++l) {
        const std::string layer = "layers." + std::to_string(l) + ".";
        for (const char* name : {"query", "key", "value"}) expect_uniform(weights.at(layer + name), bound(kWidth, 64));
        expect_uniform(weights.at(layer + "out"), bound(64, kWidth) / less);
        expect_uniform(weights.at(layer + "ff1.weight"), bound(kWidth, kInner));
        expect_uniform(weights.at(layer + "ff1.bias"), 1 / std::sqrt(kWidth));
        expect_uniform(weights.at(layer + "ff2.weight"), bound(kInner, kWidth) / less);
        expect_uniform(weights.at(layer + "ff2.bias"), 1 / std::sqrt(kInner) / less);
        for (const char* name : {"norm1", "norm2"}) {
          EXPECT_TRUE((weights.at(layer + name + ".weight") == 1).all().item<bool>());
          EXPECT_TRUE((weights.at(layer + name + ".bias") == 0).all().item<bool>());
        }
      }
      expect_uniform(weights.at("output.weight"), bound(kWidth, kTokens));
      expect_uniform(weights.at("output.bias"), 1 / std::sqrt(kWidth));
    }
}

// Those of a masking of its own (selective_attention.separate) are linear maps as others are.
TEST(Initialisation, SeparateMaskingHasLinearWeights) {
  const auto method = method_options("selective_attention");
  for (const auto& field : method->fields())
    if (field.name == "separate") *std::get<bool*>(field.value) = true;
  ModelConfig config = config_of("pre", "glorot");
  for (const auto& [name, tensor] : weights_of(config, *method))
    if (name.find("select.") != std::string::npos) expect_uniform(tensor, std::sqrt(6. / (kWidth + 16)));
  config.initialisation = "normal", config.scaled_logits = false;
  const auto weights = weights_of(config, *method);
  expect_normal(weights.at("layers.1.select.key"), 1 / std::sqrt(kWidth));
  // The operator divides S by the root of the features, whether or not it divides the logits.
  expect_normal(weights.at("layers.1.select.query"), 1 / std::sqrt(kWidth));
}

TEST(Initialisation, IsTheSameForASeedAndNoTwoTensorsAreAlike) {
  const ModelConfig config = config_of("pre", "default");
  const auto weights = weights_of(config), again = weights_of(config), other = weights_of(config, 2);
  std::set<double> firsts;
  for (const auto& [name, tensor] : weights) {
    EXPECT_TRUE(tensor.equal(again.at(name))) << name;
    if (name.find("norm") != std::string::npos) continue;
    EXPECT_FALSE(tensor.equal(other.at(name))) << name;
    EXPECT_TRUE(firsts.insert(tensor[0].item<double>()).second) << name << " begins as another tensor does";
  }
}

}  // namespace
}  // namespace lapse
