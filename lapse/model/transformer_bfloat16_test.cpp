// Training with products in bfloat16: the same numbers to its precision, and master weights that stay float32.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lapse/model/transformer.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/linear.h"

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
  ModelMemory memory = model.begin(4, true);
  Trained result;
  for (int64_t block = 0; block < 3; ++block) {
    const auto y =
        model.forward(tokens.narrow(1, block * kBlock, kBlock), memory, {.training = true, .bfloat16 = bfloat16});
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
  ModelMemory memory = model->begin(1, false);
  EXPECT_THROW(model->forward(random_tokens(1, kBlock), memory, {.bfloat16 = true}), c10::Error);
}

}  // namespace
}  // namespace lapse
