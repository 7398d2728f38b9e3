#include "lapse/observe/matrix.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lapse/core/error.h"
#include "lapse/core/testing.h"
#include "lapse/data/window.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/nn/pairs.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kLength = 23;

std::unique_ptr<Transformer> model_of(const std::string& method, const Settings& settings = {}) {
  return tiny_model(tiny_config("pre"), *method_options(method, settings), at::kDouble);
}

/// Samples of a text, each from empty memory.
class Samples : public EvaluationBlocks {
 public:
  Samples(int64_t samples, std::vector<int64_t> lengths = {}) : lengths_(std::move(lengths)), left_(2) {
    ids_ = random_tokens(samples, kLength);
  }
  bool next(TokenBlock& block) override {
    if (left_-- == 0) return false;
    const auto* first = ids_.const_data_ptr<int64_t>();
    block = {.batch = ids_.size(0), .length = kLength, .restart = true, .lengths = lengths_};
    block.input.assign(first, first + ids_.numel());
    block.target.assign(block.input.size(), 0);
    return true;
  }
  int64_t blocks() const override { return 2; }
  const Tensor& ids() const { return ids_; }

 private:
  Tensor ids_;
  std::vector<int64_t> lengths_;
  int64_t left_;
};

std::vector<Tensor> means(Transformer& model, const std::string& what, int64_t documents,
                          std::vector<int64_t> lengths = {}) {
  Samples samples(2, std::move(lengths));
  std::vector<Tensor> all;
  for (const auto& layer : record_matrix(model, samples, {.what = what, .documents = documents}).layers)
    all.push_back(layer.mean);
  return all;
}

std::vector<std::string> methods_of_blocks() {
  std::vector<std::string> names;
  for (const auto& entry : method_table())
    if (!model_of(entry.name)->layers()[0].attention().method().one_by_one()) names.push_back(entry.name);
  return names;
}

// Linear in the values: the weights give back what is read of any values.
TEST(Pairs, WeightsGiveWhatIsRead) {
  const int64_t B = 2, n = 19, H = 3, D = 4;
  const ModelShape shape{.layers = 1, .width = H * D, .heads = H, .head_dim = D, .block = n};
  for (const auto& name : methods_of_blocks()) {
    Random random(1, "weights");
    const auto method = method_options(name)->make(shape, 0, random);
    at::manual_seed(1);
    const auto real = at::TensorOptions(at::kFloat);
    const Tensor time = at::arange(n).repeat({B, 1});
    Columns columns = method->state({B, n}, real);
    columns["time"] = time, columns["kind"] = at::zeros({B, n}, at::kByte);
    columns["hidden"] = at::randn({B, n, H * D});
    MemoryTable table(B);
    table.append(columns);
    Columns described = method->describe(table.column("hidden"));
    for (const auto& [own, values] : method->state({B * n}, real)) described[own] = values;
    Rows rows{table, at::randn({B * n, H, D}), at::randn({B * n, H, D}), {}, described, Stored::projections};
    rows.until = method->until(rows.view());
    const Query query{at::randn({B, n, H * D}), at::randn({B, n, H, D}), at::zeros({B}, at::kLong), {}, {}};
    const Tensor out = method->read(query, rows).out;
    const Tensor weights = pairs_of(*method, query, rows, Pairs::weights).at("weights");
    const Tensor again = at::einsum("bhki,bihd->bkhd", {weights, rows.value.view({B, n, H, D})});
    EXPECT_LE((out - again).abs().max().item<double>(), 1e-5) << name;
    EXPECT_GT(weights.max().item<double>(), 0) << name;
  }
}

// Of a layer of the model: no weight for later rows, 1 in all where the rows of a sequence's start take none.
TEST(Matrix, AttentionAddsUpToOne) {
  for (const auto& name : methods_of_blocks()) {
    const auto model = model_of(name);
    for (const Tensor& mean : means(*model, "attention", 2)) {
      ASSERT_EQ(mean.sizes(), at::IntArrayRef({3, kLength, kLength})) << name;
      EXPECT_EQ(mean.triu(1).abs().max().item<double>(), 0) << name;
      const Tensor sums = mean.sum(2);
      EXPECT_LE(sums.max().item<double>(), 1 + 1e-5) << name;
      if (method_options(name)->initial_rows(model->shape()) == 0) {
        EXPECT_GE(sums.narrow(1, 1, kLength - 1).min().item<double>(), 1 - 1e-5) << name;
      }
    }
  }
}

// Read token by token, the table's column after each token is the next query's F.
TEST(Matrix, MaskingIsThatOfSingleSteps) {
  const auto model = model_of("selective_attention");
  const Tensor ids = Samples(2).ids();
  std::vector<Tensor> expected;
  for (int64_t l = 0; l < 2; ++l) expected.push_back(at::zeros({2, kLength, kLength}, at::kDouble));
  at::NoGradGuard no_grad;
  for (int64_t b = 0; b < 2; ++b) {
    ModelMemory memory = model->begin(1, Stored::projections);
    for (int64_t t = 0; t + 1 < kLength; ++t) {
      model->forward(ids.narrow(0, b, 1).narrow(1, t, 1), memory, {});
      for (int64_t l = 0; l < 2; ++l)
        expected[l][b][t + 1].narrow(0, 0, t + 1).copy_(memory.layers[l].column("masking"));
    }
  }
  const auto found = means(*model, "masking", 2);
  for (int64_t l = 0; l < 2; ++l) EXPECT_LE((found[l][0] - expected[l].mean(0)).abs().max().item<double>(), 1e-5);
  EXPECT_GT(found[0].max().item<double>(), 0.1);
}

TEST(Matrix, KeptRowsAddUpToMemorySizes) {
  for (const auto& name : methods_of_blocks()) {
    const auto model = model_of(name, {{"budgets", "[5, 9]"}, {"max_span", "9"}});
    Samples samples(2);
    at::NoGradGuard no_grad;
    ModelMemory memory = model->begin(2, Stored::projections);
    const auto y = model->forward(samples.ids(), memory, {.observe = true});
    if (method_options(name)->initial_rows(model->shape()) > 0 || name == "compressive")
      continue;  // rows that are no tokens
    const auto kept = means(*model, "kept", 2);
    for (size_t l = 0; l < kept.size(); ++l) {
      const Tensor sizes = y.reports[l].sizes.to(at::kDouble).mean(0);
      const Tensor itself = 1 - sizes[0];  // 1 where a query does not read its own row, which is in memory all the same
      EXPECT_LE((kept[l][0].sum(1) - itself - sizes).abs().max().item<double>(), 1e-12) << name;
    }
  }
}

TEST(Matrix, AveragesOfOlderRowsAreNoTokens) {
  const auto model = model_of("compressive", {{"max_span", "8"}});
  const auto kept = means(*model, "kept", 2);
  for (const auto& [layer, mean] : {std::pair(0, kept[0]), std::pair(1, kept[1])}) {
    EXPECT_EQ(mean.size(1), kLength) << layer;
    EXPECT_EQ(mean[0].diagonal().min().item<double>(), 1) << layer;
    EXPECT_EQ(mean[0][kLength - 1][0].item<double>(), 0) << layer << ": the first token is in averages only";
  }
}

TEST(Matrix, ALineIsAMeanOfTheDocumentsThatReachIt) {
  const auto model = model_of("selective_attention");
  Samples samples(2, {kLength, 7});
  const auto record = record_matrix(*model, samples, {.what = "masking", .documents = 4, .layer = 1});
  ASSERT_EQ(record.layers.size(), 1u);
  EXPECT_EQ(record.layers[0].number, 1);
  EXPECT_EQ(record.documents, 4);
  EXPECT_EQ(record.counts[6], 4);
  EXPECT_EQ(record.counts[7], 2);
  const Tensor first = means(*model, "masking", 1)[1], both = means(*model, "masking", 2)[1];
  EXPECT_TRUE(at::allclose(record.layers[0].mean.narrow(1, 7, kLength - 7), first.narrow(1, 7, kLength - 7)));
  EXPECT_TRUE(at::allclose(record.layers[0].mean.narrow(1, 0, 7), both.narrow(1, 0, 7)));
}

TEST(Matrix, JsonHasALineForEachQuery) {
  const auto model = model_of("fixed_span");
  Samples samples(2);
  const MatrixOptions options{.what = "attention"};
  const auto record = record_matrix(*model, samples, options);
  EXPECT_EQ(std::ssize(record.tokens), kLength);
  const auto json =
      nlohmann::json::parse(matrix_json(record, options, {{"run", "a run"}, {"split", "test"}}, {"a", "\"b"}));
  EXPECT_EQ(json["matrix"], "attention");
  EXPECT_EQ(json["run"], "a run");
  EXPECT_EQ(json["split"], "test");
  EXPECT_EQ(json["tokens"][1], "\"b");
  ASSERT_EQ(json["layers"].size(), 2u);
  ASSERT_EQ(json["layers"][1]["heads"].size(), 3u);
  const auto& lines = json["layers"][1]["heads"][2];
  for (int64_t t = 0; t < kLength; ++t) EXPECT_EQ(std::ssize(lines[t]), t + 1);
  EXPECT_NEAR(lines[5][2], record.layers[1].mean[2][5][2].item<double>(), 1e-4);
}

TEST(Matrix, WhatCannotBeShownIsAnError) {
  Samples samples(1);
  const auto error = [&](const std::string& method, const std::string& what) {
    const auto model = model_of(method);
    return error_of([&] { record_matrix(*model, samples, {.what = what}); });
  };
  EXPECT_THAT(error("fixed_span", "masking"), testing::HasSubstr("masking"));
  EXPECT_THAT(error("h2o", "attention"), testing::HasSubstr("token by token"));
  const auto diverged = model_of("fixed_span");
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : diverged->parameters())
    if (name == "layers.1.key") tensor->fill_(std::numeric_limits<double>::infinity());
  Samples some(1);
  EXPECT_THAT(error_of([&] { record_matrix(*diverged, some, {.what = "attention"}); }),
              testing::HasSubstr("layer 1 has numbers that are not finite"));
}

}  // namespace
}  // namespace lapse
