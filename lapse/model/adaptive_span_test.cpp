// Adaptive-Span beside fixed span, and what it keeps.
#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// z of each layer.
std::vector<Tensor*> fractions(Transformer& model) {
  std::vector<Tensor*> all;
  for (auto& [name, tensor] : model.parameters())
    if (name.ends_with("span.fraction")) all.push_back(tensor);
  return all;
}

std::unique_ptr<Transformer> model_with_spans(double fraction, const Settings& settings) {
  auto model = tiny_model(tiny_config("post"), *method_options("adaptive_span", settings), at::kDouble);
  for (Tensor* z : fractions(*model)) z->detach().fill_(fraction);
  return model;
}

/// Copies what both models have.
void copy_weights(Transformer& from, Transformer& to) {
  std::map<std::string, Tensor*> theirs;
  for (auto& [name, tensor] : from.parameters()) theirs[name] = tensor;
  for (auto& [name, tensor] : to.parameters()) tensor->detach().copy_(*theirs.at(name));
}

TEST(AdaptiveSpan, IsFixedSpanAtItsMaximum) {
  const auto adaptive = model_with_spans(1, {{"max_span", "13"}});
  const auto fixed = tiny_model(tiny_config("post"), *method_options("fixed_span", {{"max_span", "13"}}), at::kDouble);
  copy_weights(*adaptive, *fixed);
  const Tensor tokens = random_tokens(2, 40);
  for (bool training : {true, false}) {
    const std::vector<int64_t> lengths = {8, 8, 8, 8, 8};
    // 1e-8 of the renormalisation apart.
    EXPECT_LE(difference(run(*adaptive, training, tokens, lengths), run(*fixed, training, tokens, lengths)), 1e-7);
  }
}

TEST(AdaptiveSpan, ReadsAsFarAsItsLongestHeadAndKeepsNoMore) {
  const Settings settings = {{"max_span", "300"}, {"ramp", "5"}, {"trim_step", "10"}};
  const auto model = model_with_spans(0.1, settings);
  fractions(*model)[0]->detach()[1].fill_(0.2);
  at::NoGradGuard no_grad;
  for (bool training : {true, false}) {
    ModelMemory memory = model->begin(1, stored_of(training));
    Transformer::Result y;
    for (int64_t i = 0; i < 50; ++i) y = model->forward(random_tokens(1, kBlock, i), memory, {.observe = true});
    // m > 0 while a < z L + 1 + R.
    EXPECT_EQ(y.reports[0].memory_max, 0.2 * 300 + 5);
    EXPECT_EQ(y.reports[1].memory_max, 0.1 * 300 + 5);
    // L less a whole number of steps that no head needs, and in training one step more.
    EXPECT_EQ(memory.layers[0].rows(), training ? 80 : 70);
    EXPECT_EQ(memory.layers[1].rows(), training ? 50 : 40);
    EXPECT_DOUBLE_EQ(y.reports[0].told.at("span").max().item<double>(), 60);
  }
}

TEST(AdaptiveSpan, CostsTheMeanOfItsSpans) {
  const auto model = model_with_spans(0.25, {{"max_span", "20"}, {"loss", "0.01"}});
  ModelMemory memory = model->begin(2, Stored::inputs);
  const auto y = model->forward(random_tokens(2, kBlock), memory, {});
  EXPECT_NEAR(y.cost.item<double>(), 2 * 0.01 * 20 * 0.25, 1e-7);  // z is a float32 0.25 in float64: exact; loss is not
  y.cost.backward();
  for (const Tensor* z : fractions(*model)) EXPECT_LE((z->grad() - 0.01 * 20 / 3).abs().max().item<double>(), 1e-9);
}

TEST(AdaptiveSpan, StaysBetweenNothingAndEverything) {
  const auto model = model_with_spans(0.5, {});
  for (const double wild : {-3., 4.}) {
    for (Tensor* z : fractions(*model)) z->detach().fill_(wild);
    model->after_update();
    for (const Tensor* z : fractions(*model)) EXPECT_TRUE((*z == (wild < 0 ? 0 : 1)).all().item<bool>());
  }
}

TEST(AdaptiveSpan, MayShareASpanBetweenHeads) {
  const auto model =
      tiny_model(tiny_config("pre"), *method_options("adaptive_span", {{"per_layer", "true"}}), at::kDouble);
  for (const Tensor* z : fractions(*model)) EXPECT_EQ(z->numel(), 1);
  const Tensor tokens = random_tokens(2, 30);
  EXPECT_LE(difference(run(*model, false, tokens, {30}), run(*model, false, tokens, {7, 7, 7, 9})), 1e-10);
}

}  // namespace
}  // namespace lapse
