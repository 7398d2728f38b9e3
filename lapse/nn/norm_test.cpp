// The norm of a few rows, as layers take it token by token.
#include "lapse/nn/norm.h"
#include "lapse/ops/aten.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace lapse {
namespace {

using at::Tensor;

TEST(Norm, OfAFewRowsIsTheSame) {
  for (const char* kind : {"layer", "rms"})
    for (const int64_t rows : {1, 3}) {
      Norm norm(33, kind);
      NamedTensors parameters;
      norm.name("norm", parameters);
      for (auto& [name, tensor] : parameters) *tensor = at::randn({33});
      const Tensor x = at::randn({rows, 33}), more = at::randn({rows, 33});
      const auto expected = [&](const Tensor& of) {  // by libtorch
        const Tensor wide = of.to(at::kDouble), weight = parameters[0].second->to(at::kDouble);
        return (parameters.size() == 2 ? at::layer_norm(wide, {33}, weight, parameters[1].second->to(at::kDouble), 1e-5)
                                       : at::rms_norm(wide, {33}, weight, 1e-5))
            .to(at::kFloat);
      };
      for (const bool gradients : {true, false}) {
        at::AutoGradMode mode(gradients);
        EXPECT_TRUE(norm.of_sum(x, more).allclose(expected(x + more), 1e-5, 1e-5)) << kind << " " << rows;
        EXPECT_TRUE(norm(x).allclose(expected(x), 1e-5, 1e-5)) << kind << " " << rows;
        EXPECT_THROW(norm(at::ones({rows, 34})), c10::Error);
        EXPECT_THROW(norm.of_sum(x, at::ones({rows, 34})), c10::Error);
      }
    }
}

}  // namespace
}  // namespace lapse
