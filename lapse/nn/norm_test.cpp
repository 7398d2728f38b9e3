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
      const Tensor sum = norm.of_sum(x, more), one = norm(x);  // with gradients: by libtorch's operators
      at::NoGradGuard no_grad;
      EXPECT_TRUE(norm.of_sum(x, more).allclose(sum, 1e-5, 1e-5)) << kind << " " << rows;
      EXPECT_TRUE(norm(x).allclose(one, 1e-5, 1e-5)) << kind << " " << rows;
    }
}

}  // namespace
}  // namespace lapse
