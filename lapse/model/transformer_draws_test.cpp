// What is random in a model: fresh weights, and a training block's draws - layer drop, random drop, dropout.
#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/dropout.h"

namespace lapse {
namespace {

using at::Tensor;

// ----- fresh weights
// ---------------------------------------------------------------------------------------------------

class FreshWeights : public testing::TestWithParam<std::string> {
 protected:
  Transformer model(Random random) const {
    return Transformer(tiny_config(GetParam()), *method_options("expire_span"), kVocabulary, kBlock, random);
  }
};
INSTANTIATE_TEST_SUITE_P(Norms, FreshWeights, testing::Values("post", "pre"));

TEST_P(FreshWeights, FollowTheStreamAlone) {
  Transformer a = model(Random(1, "weights")), b = model(Random(1, "weights")),
              other_seed = model(Random(2, "weights")), other_name = model(Random(1, "else"));
  const auto all = a.parameters(), same = b.parameters(), seed = other_seed.parameters(),
             stream = other_name.parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [name, x] = all[i];
    EXPECT_TRUE(x->equal(*same[i].second)) << name;
    const bool drawn = name.find("norm") == std::string::npos && name.find("span") == std::string::npos;
    EXPECT_EQ(!x->equal(*seed[i].second), drawn) << name;
    EXPECT_EQ(!x->equal(*stream[i].second), drawn) << name;
  }
}

TEST_P(FreshWeights, AreDistributedAsThePublicCodes) {
  ModelConfig config = tiny_config(GetParam());
  config.width = 48, config.feed_forward = 80;
  Transformer m(config, *method_options("expire_span", {{"initial_fraction", "0.2"}}), 100, 32, Random(3, "weights"));
  const double shrunk = GetParam() == "pre" ? 2 : 1;  // sqrt(2 layers)
  const std::map<std::string, double> bounds = {{"query", 1 / std::sqrt(48)},
                                                {"out", 1 / std::sqrt(48) / shrunk},
                                                {"ff1.weight", 1 / std::sqrt(48)},
                                                {"ff1.bias", 1 / std::sqrt(48)},
                                                {"ff2.weight", 1 / std::sqrt(80) / shrunk},
                                                {"ff2.bias", 1 / std::sqrt(80) / shrunk},
                                                {"key", 1 / std::sqrt(48)},
                                                {"value", 1 / std::sqrt(48)}};
  for (auto& [full_name, x] : m.parameters()) {
    const std::string name = full_name.rfind("layers.", 0) == 0 ? full_name.substr(9) : full_name;
    const auto found = bounds.find(name == "output.weight" || name == "output.bias" ? "query" : name);
    const double largest = x->abs().max().item<double>(), n = static_cast<double>(x->numel());
    if (found != bounds.end()) {  // uniform: the largest of n draws is within the bound, and short of it by 1 / n
      EXPECT_LE(largest, found->second) << full_name;
      EXPECT_GE(largest, found->second * (1 - 12 / n)) << full_name;
      EXPECT_NEAR(x->mean().item<double>(), 0, 4 * found->second / std::sqrt(3 * n)) << full_name;
    } else if (name == "embedding" || name == "position") {
      EXPECT_NEAR(x->mean().item<double>(), 0, 4 / std::sqrt(n)) << full_name;
      EXPECT_NEAR(x->std().item<double>(), 1, 4 / std::sqrt(2 * n)) << full_name;
    } else {
      const double value =
          name == "span.bias" ? std::log(0.2 / 0.8)
          : name.ends_with("norm.weight") || name.ends_with("norm1.weight") || name.ends_with("norm2.weight") ? 1
                                                                                                              : 0;
      EXPECT_LE((*x - value).abs().max().item<double>(), 1e-6) << full_name;
    }
  }
}

// Checkpoints find parameters by name.
TEST_P(FreshWeights, HaveLastingNames) {
  const std::vector<std::string> layer = {"query",        "key",        "value",       "out",        "norm1.weight",
                                          "norm1.bias",   "ff1.weight", "ff1.bias",    "ff2.weight", "ff2.bias",
                                          "norm2.weight", "norm2.bias", "span.weight", "span.bias"};
  std::vector<std::string> expected = {"embedding", "position"}, names;
  for (const char* l : {"layers.0.", "layers.1."})
    for (const auto& name : layer) expected.push_back(l + name);
  if (GetParam() == "pre") expected.insert(expected.end(), {"norm.weight", "norm.bias"});
  expected.insert(expected.end(), {"output.weight", "output.bias"});
  Transformer m = model(Random(1, "weights"));
  int64_t count = 0;
  for (const auto& [name, tensor] : m.parameters()) {
    names.push_back(name);
    count += tensor->numel();
    EXPECT_TRUE(tensor->requires_grad() && tensor->is_leaf()) << name;
  }
  EXPECT_EQ(names, expected);
  EXPECT_EQ(m.parameter_count(), count);
}

// ----- a training block's draws
// ----------------------------------------------------------------------------------------

class Draws : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::unique_ptr<Transformer> model(const Settings& settings = {}) const {
    return tiny_model(config(), *method_options(std::get<0>(GetParam()), settings), at::kDouble);
  }
  virtual ModelConfig config() const { return tiny_config(std::get<1>(GetParam())); }

  const Threads one_{1};
};

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& entry : method_table()) names.push_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, Draws,
                         testing::Combine(testing::ValuesIn(method_names()), testing::Values("post", "pre")));

struct Trained {
  Transformer::Result y;
  ModelMemory memory;
};

/// The last of three training blocks, with gradients.
Trained train(Transformer& model, const BlockDraws& draws) {
  Trained t{{}, model.begin(2, Stored::inputs)};
  for (int64_t i = 0; i < 3; ++i) t.y = model.forward(random_tokens(2, kBlock, i), t.memory, {.observe = true}, draws);
  return t;
}

void expect_same(const MemoryTable& a, const MemoryTable& b) {
  EXPECT_TRUE(a.offsets().equal(b.offsets()));
  ASSERT_EQ(a.columns().size(), b.columns().size());
  for (const auto& [name, values] : a.columns()) EXPECT_TRUE(values.equal(b.column(name))) << name;
}

void expect_same(const LayerReport& a, const LayerReport& b) {
  EXPECT_EQ(a.memory_mean(), b.memory_mean());
  EXPECT_EQ(a.memory_max, b.memory_max);
  EXPECT_EQ(a.deleted, b.deleted);
  ASSERT_EQ(a.told.size(), b.told.size());
  for (const auto& [name, values] : a.told) EXPECT_TRUE(values.equal(b.told.at(name))) << name;
}

TEST_P(Draws, ADroppedLayerOnlyRemembers) {
  const auto m = model();
  const auto whole = train(*m, {}), first = train(*m, {.dropped = {true, false}}),
             last = train(*m, {.dropped = {false, true}}), both = train(*m, {.dropped = {true, true}});
  // The first layer's inputs are embeddings: the same whether or not it is dropped.
  expect_same(first.memory.layers[0], whole.memory.layers[0]);
  expect_same(first.y.reports[0], whole.y.reports[0]);
  expect_same(last.memory.layers[1], whole.memory.layers[1]);
  expect_same(last.y.reports[1], whole.y.reports[1]);
  EXPECT_GT(difference(first.y.logits, whole.y.logits), 1e-3);

  // Costs: each layer's own, where it is not dropped.
  EXPECT_EQ(both.y.cost.item<double>(), 0);
  const Tensor dropped_first = train(*m, {.dropped = {true, false}}).y.cost;
  EXPECT_TRUE(dropped_first.equal(first.y.cost));
  const double second = whole.y.cost.item<double>() - last.y.cost.item<double>();
  EXPECT_EQ(second != 0, whole.y.cost.item<double>() != 0);

  // Nothing but the embedding is left of the model without layers.
  std::map<std::string, Tensor> p;
  for (auto& [name, tensor] : m->parameters()) p[name] = *tensor;
  Tensor h = at::embedding(p["embedding"], random_tokens(2, kBlock, 2));
  if (p.count("norm.weight")) h = at::layer_norm(h, {12}, p["norm.weight"], p["norm.bias"]);
  EXPECT_LE(difference(both.y.logits, at::linear(h, p["output.weight"], p["output.bias"])), 1e-12);
}

// The model without layers is its two ends, each with a mask of its own.
TEST_P(Draws, EndsHaveDropoutsOfTheirOwn) {
  ModelConfig c = config();
  c.embedding_dropout = 0.3, c.output_dropout = 0.4;
  const auto m = tiny_model(c, *method_options(std::get<0>(GetParam())), at::kDouble);
  const BlockDraws draws{.seed = 7, .dropped = {true, true}};
  const auto one = train(*m, draws), same = train(*m, draws);
  EXPECT_TRUE(one.y.logits.equal(same.y.logits));
  std::map<std::string, Tensor> p;
  for (auto& [name, tensor] : m->parameters()) p[name] = *tensor;
  Tensor h = dropped(at::embedding(p["embedding"], random_tokens(2, kBlock, 2)), {0.3, mix64(7 + 2)});
  if (p.count("norm.weight")) h = at::layer_norm(h, {12}, p["norm.weight"], p["norm.bias"]);
  h = dropped(h, {0.4, mix64(7 + 3)});
  EXPECT_LE(difference(one.y.logits, at::linear(h, p["output.weight"], p["output.bias"])), 1e-12);
}

TEST_P(Draws, LayersDropAtTheirRate) {
  for (double rate : {0., 0.3}) {
    ModelConfig c = config();
    c.layer_drop = rate;
    const auto m = tiny_model(c, *method_options(std::get<0>(GetParam())), at::kFloat);
    Random random(1, "draws");
    double dropped = 0, uniform = 0;
    const int n = 2000;
    for (int i = 0; i < n; ++i) {
      const auto draws = m->draw(random);
      ASSERT_EQ(draws.dropped.size(), 2u);
      dropped += draws.dropped[0] + draws.dropped[1];
      uniform += draws.uniform;
      ASSERT_TRUE(draws.uniform >= 0 && draws.uniform < 1);
    }
    EXPECT_NEAR(dropped / (2 * n), rate, 4 * std::sqrt(rate * (1 - rate) / (2 * n)));
    EXPECT_NEAR(uniform / n, 0.5, 4 / std::sqrt(12. * n));
  }
}

TEST_P(Draws, DropoutFollowsTheSeedAndStaysInTraining) {
  ModelConfig c = config();
  const auto plain = tiny_model(c, *method_options(std::get<0>(GetParam())), at::kDouble);
  c.dropout = 0.3;
  const auto m = tiny_model(c, *method_options(std::get<0>(GetParam())), at::kDouble);
  const Tensor one = train(*m, {.seed = 1}).y.logits;
  EXPECT_TRUE(one.equal(train(*m, {.seed = 1}).y.logits));
  EXPECT_GT(difference(train(*m, {.seed = 2}).y.logits, one), 1e-3);
  EXPECT_GT(difference(train(*plain, {.seed = 1}).y.logits, one), 1e-3);
  const Tensor tokens = random_tokens(2, 20);
  EXPECT_TRUE(run(*m, false, tokens, {20}).equal(run(*plain, false, tokens, {20})));
}

TEST_P(Draws, RandomDropShortensWhatIsReadAndNothingElse) {
  if (std::get<0>(GetParam()) != "expire_span") return;
  const auto m = model({{"random_drop", "true"}}), without = model();
  const auto whole = train(*m, {.uniform = 1}), cut = train(*m, {.uniform = 0.2});
  EXPECT_GT(difference(cut.y.logits, whole.y.logits), 1e-3);
  EXPECT_GT(std::abs(cut.y.cost.item<double>() - whole.y.cost.item<double>()), 1e-6);
  // The first layer's spans depend on its inputs alone; what it tells and deletes is the same.
  expect_same(cut.y.reports[0], whole.y.reports[0]);
  expect_same(cut.memory.layers[0], whole.memory.layers[0]);
  EXPECT_GT(whole.y.reports[0].told.at("span").max().item<double>(), 0.2 * 33);
  // u = 1 is no cut, and without the option no u is one.
  EXPECT_TRUE(train(*without, {.uniform = 0.2}).y.logits.equal(train(*without, {}).y.logits));
  EXPECT_TRUE(whole.y.logits.equal(train(*without, {}).y.logits));
}

}  // namespace
}  // namespace lapse
