// Training with products in bfloat16: the same numbers to its precision, and master weights that stay float32.
#include <gtest/gtest.h>

#include "lapse/core/error.h"
#include "lapse/model/transformer.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/linear.h"

namespace lapse {
namespace {

using at::Tensor;

struct Trained {
  Tensor logits;
  std::vector<Tensor> gradients;
};

/// Three blocks, back-propagated together with weights that make every logit count.
Trained train(Transformer& model, bool bfloat16) {
  for (auto& [name, parameter] : model.parameters()) parameter->mutable_grad() = Tensor();
  const Tensor tokens = random_tokens(4, 3 * kBlock);
  ModelMemory memory = model.begin(4, Stored::inputs);
  Trained result;
  for (int64_t block = 0; block < 3; ++block) {
    const auto y = model.forward(tokens.narrow(1, block * kBlock, kBlock), memory, {.bfloat16 = bfloat16});
    (at::log_softmax(y.logits, 2).select(2, 1).mean() + y.cost).backward();
    result.logits = y.logits.detach();
  }
  for (auto& [name, parameter] : model.parameters())
    result.gradients.push_back(parameter->grad().defined() ? parameter->grad() : at::zeros_like(*parameter).detach());
  return result;
}

TEST(TransformerBfloat16, AgreesWithFloat32ToItsPrecision) {
  if (!has_bfloat16_products()) GTEST_SKIP() << "this processor does not multiply bfloat16";
  const Threads one(1);
  for (const auto& entry : method_table())
    for (const char* norm : {"post", "pre"}) {
      SCOPED_TRACE(std::string(entry.name) + ", " + norm);
      const auto options = method_options(entry.name);
      const auto model = tiny_model(tiny_config(norm), *options, at::kFloat);
      const Trained exact = train(*model, false), rounded = train(*model, true);
      // Each of some ten products in a row rounds its operands to 2^-9, and norms divide by deviations below 1.
      EXPECT_LE(difference(rounded.logits, exact.logits), 0.03);
      EXPECT_GT(difference(rounded.logits, exact.logits), 0);  // else nothing was computed in bfloat16
      for (size_t i = 0; i < exact.gradients.size(); ++i) {
        EXPECT_EQ(rounded.gradients[i].scalar_type(), at::kFloat);
        const Tensor off = rounded.gradients[i] - exact.gradients[i];
        const double whole = exact.gradients[i].norm().item<double>(), error = off.norm().item<double>();
        EXPECT_LE(error, 0.1 * whole + 1e-5) << model->parameters()[i].first;
      }
    }
}

TEST(TransformerBfloat16, IsForTrainingOnly) {
  const auto options = method_options(default_method().name);
  const auto model = tiny_model(tiny_config("post"), *options, at::kFloat);
  ModelMemory memory = model->begin(1, Stored::projections);
  EXPECT_THROW(model->forward(random_tokens(1, kBlock), memory, {.bfloat16 = true}), Error);
}

/// Logits of three blocks' tokens, read in blocks of `block`.
Tensor read(Transformer& model, const Tensor& tokens, int64_t block) {
  const at::NoGradGuard no_grad;
  ModelMemory memory = model.begin(tokens.size(0), Stored::projections);
  std::vector<Tensor> logits;
  for (int64_t i = 0; i < tokens.size(1); i += block)
    logits.push_back(model.forward(tokens.narrow(1, i, std::min(block, tokens.size(1) - i)), memory, {}).logits);
  return lapse::cat(logits, 1);
}

TEST(TransformerBfloat16, ReadsAsInFloat32ToItsPrecisionTokenByTokenToo) {
  for (const auto& entry : method_table())
    for (const char* norm : {"post", "pre"}) {
      SCOPED_TRACE(std::string(entry.name) + ", " + norm);
      const auto options = method_options(entry.name);
      const auto exact = tiny_model(tiny_config(norm), *options, at::kFloat),
                 rounded = tiny_model(tiny_config(norm), *options, at::kFloat);
      rounded->to_bfloat16();
      const Tensor tokens = random_tokens(2, 3 * kBlock), expected = read(*exact, tokens, kBlock);
      // Weights, keys, values and what attention reads are rounded to 2^-9, in each of a few layers.
      for (const int64_t block : {kBlock, int64_t{1}}) {
        const Tensor y = read(*rounded, tokens, block);
        ASSERT_EQ(y.scalar_type(), at::kFloat);
        EXPECT_LE((y - expected).norm().item<double>(), 0.03 * expected.norm().item<double>()) << "block " << block;
        EXPECT_GT((y - expected).norm().item<double>(), 0) << "nothing was rounded";
      }
    }
}

TEST(TransformerBfloat16, KeepsHalfTheBytesForEachRow) {
  const auto options = method_options(default_method().name);
  const auto exact = tiny_model(tiny_config("post"), *options, at::kFloat),
             rounded = tiny_model(tiny_config("post"), *options, at::kFloat);
  rounded->to_bfloat16();
  const at::NoGradGuard no_grad;
  ModelMemory wide = exact->begin(2, Stored::projections), narrow = rounded->begin(2, Stored::projections);
  const Tensor tokens = random_tokens(2, kBlock);
  exact->forward(tokens, wide, {}), rounded->forward(tokens, narrow, {});
  for (const char* name : {"key", "value"})
    EXPECT_EQ(2 * narrow.layers[0].column(name).nbytes(), wide.layers[0].column(name).nbytes());
}

TEST(TransformerBfloat16, ThatReadsCannotTrain) {
  const auto options = method_options(default_method().name);
  const auto model = tiny_model(tiny_config("post"), *options, at::kFloat);
  model->to_bfloat16();
  ModelMemory memory = model->begin(1, Stored::inputs);
  EXPECT_THROW(model->forward(random_tokens(1, kBlock), memory, {}), c10::Error);
}

}  // namespace
}  // namespace lapse
