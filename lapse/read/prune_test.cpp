// The search for budgets, and how it reads a text: against whole models on windows, documents and streams.
#include "lapse/read/prune.h"

#include <gtest/gtest.h>

#include "lapse/data/document.h"
#include "lapse/data/window.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/train/evaluate.h"

namespace lapse {
namespace {

std::unique_ptr<Transformer> selective(const std::string& positions = "absolute") {
  ModelConfig config = tiny_config("pre");
  config.positions = positions, config.attend_self = true;
  const auto options = method_options("selective_attention", {{"max_span", "40"}});
  auto model = std::make_unique<Transformer>(config, *options, kVocabulary, 40, Random(1, "weights"));
  model->to(at::kDouble);
  return model;
}

/// In documents of these lengths; one length: not in documents.
Tokens text_of(const std::vector<int64_t>& lengths) {
  Random random(9, "tokens");
  Tokens tokens(kVocabulary);
  for (const int64_t length : lengths) {
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(kVocabulary));
    tokens.append(ids);
    if (lengths.size() > 1) tokens.end_document();
  }
  return tokens;
}

using Blocks = std::function<std::unique_ptr<EvaluationBlocks>()>;

/// Whatever was tried before, losses are those of the model with these budgets.
void expect_losses_of_the_model(Transformer& model, const Blocks& open) {
  LayerwiseText text(model, *open(), 0);
  const auto expect = [&](double loss, std::vector<int64_t> budgets) {
    set_budgets(model, budgets);
    EXPECT_NEAR(loss, evaluate(model, *open()).nats, 1e-12) << budgets[0] << ' ' << budgets[1];
  };
  expect(text.loss({40, 40}), {40, 40});
  expect(text.loss_with(0, 8), {8, 40});
  expect(text.loss_with(1, 8), {40, 8});
  expect(text.loss({40, 16}), {40, 16});  // not tried
  expect(text.loss_with(1, 8), {40, 8});
  expect(text.loss_with(0, 24), {24, 16});
  expect(text.loss({24, 16}), {24, 16});
  expect(text.loss({24, 8}), {24, 8});
  for (int64_t rows = 16; rows > 0; --rows) {
    expect(text.loss_with(0, rows), {rows, 8});
    expect(text.loss_with(1, 17 - rows), {24, 17 - rows});
  }
  expect(text.loss({24, 3}), {24, 3});
  expect(text.loss({40, 40}), {40, 40});
}

TEST(Prune, ReadsWindowsAsTheModelDoes) {
  const Tokens tokens = text_of({400});
  expect_losses_of_the_model(*selective(), [&] { return std::make_unique<EvaluationWindows>(tokens, 0, 4, 40, true); });
}

TEST(Prune, ReadsDocumentsAsTheModelDoes) {
  const Tokens tokens = text_of({13, 40, 1, 7, 16, 2, 61, 39, 24, 8, 9});
  for (const int64_t batch : {1, 3, 4, 11})
    expect_losses_of_the_model(*selective(),
                               [&] { return std::make_unique<EvaluationDocuments>(tokens, 0, batch, 40); });
}

TEST(Prune, ReadsStreamsAsTheModelDoes) {
  const Tokens tokens = text_of({200});
  for (const int64_t block : {7, 40})
    expect_losses_of_the_model(*selective("relative"),
                               [&] { return std::make_unique<EvaluationStreams>(tokens, 2, block, true); });
}

// A document that is shorter than both budgets is not read again, and what was tried last is not either.
TEST(Prune, ReadsNothingAnewThatDidNotChange) {
  const Tokens tokens = text_of({5, 6, 7, 40, 30, 20});
  const Tokens short_ones = text_of({5, 6, 7});
  const auto model = selective();
  EvaluationDocuments blocks(tokens, 0, 3, 40), short_blocks(short_ones, 0, 3, 40);
  const double short_nats = 18 * LayerwiseText(*model, short_blocks, 0).loss({40, 40});
  LayerwiseText text(*model, blocks, 0);
  text.loss({40, 40});
  const double tried = text.loss_with(0, 8);
  for (auto& [name, tensor] : model->parameters()) tensor->detach().zero_();  // what is read from now on shows
  EXPECT_EQ(text.loss({8, 40}), tried);
  EXPECT_EQ(text.loss({8, 41}), tried);
  const double anew = 90 * std::log(kVocabulary);  // the 40, 30 and 20 tokens, by a model of zeros
  EXPECT_NEAR(text.loss({8, 39}), (short_nats + anew) / 108, 1e-12);
}

class Windows {
 public:
  EvaluationWindows open() const { return EvaluationWindows(tokens_, 0, 4, 40, true); }

 private:
  Tokens tokens_ = text_of({400});
};

TEST(Prune, LowersTheCheapestLayerAndGoesOnWhereItStopped) {
  const auto model = selective();
  const Windows windows;
  EvaluationWindows blocks = windows.open();
  LayerwiseText text(*model, blocks, 0);
  PruneOptions options{.context = 40, .threshold = 1e9};
  const auto curve = search_budgets(text, 2, options, {});
  ASSERT_EQ(curve.size(), 9u);  // 40, 32, ..., 8 in each layer
  for (size_t i = 1; i < curve.size(); ++i) {
    double least = INFINITY;
    text.loss(curve[i - 1].budgets);
    for (int64_t l = 0; l < 2; ++l)
      if (curve[i - 1].budgets[l] > 8) least = std::min(least, text.loss_with(l, curve[i - 1].budgets[l] - 8));
    EXPECT_EQ(curve[i].total(), curve[i - 1].total() - 8);
    EXPECT_NEAR(curve[i].nats, least, 1e-12);
  }
  EvaluationWindows again = windows.open();
  LayerwiseText fresh(*model, again, 0);
  const auto resumed = search_budgets(fresh, 2, options, {curve.begin(), curve.begin() + 4});
  ASSERT_EQ(resumed.size(), curve.size());
  for (size_t i = 0; i < curve.size(); ++i) EXPECT_EQ(resumed[i].budgets, curve[i].budgets);

  // A goal that the whole memory misses: the curve is drawn all the same, as far as the margin from there.
  options.threshold = 0, options.margin = 0.5;
  EXPECT_EQ(search_budgets(text, 2, options, {}).size(), curve.size());
  EXPECT_LT(curve.back().nats, curve.front().nats + 0.5);

  const std::vector<PruneRound> rounds = {
      {{40, 40}, 2}, {{40, 32}, 1.9}, {{32, 32}, 2.1}, {{24, 32}, 2}, {{24, 24}, 2.2}};
  EXPECT_EQ(&chosen_round(rounds, 2), &rounds[3]);
  EXPECT_EQ(&chosen_round(rounds, 2.5), &rounds[4]);
  EXPECT_EQ(&chosen_round(rounds, 1), &rounds[0]);
}

}  // namespace
}  // namespace lapse
