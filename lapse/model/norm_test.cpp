// The norm of a sum, as layers take it, with and without gradients.
#include "lapse/model/norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace lapse {
namespace {

using at::Tensor;

TEST(Norm, OfASumIsTheSumsNorm) {
  for (const char* kind : {"layer", "rms"})
    for (const int64_t rows : {1, 3})
      for (const auto type : {at::kFloat, at::kDouble}) {
        Norm norm(32, kind);
        NamedTensors parameters;
        norm.name("norm", parameters);
        for (auto& [name, tensor] : parameters)
          *tensor = at::randn({32}, tensor->options().dtype(type).requires_grad(false));
        // Every other column: what is not contiguous is read all the same.
        const Tensor x = at::randn({rows, 64}, type).slice(1, 0, 64, 2), more = at::randn({rows, 32}, type);
        const Tensor expected = norm(x + more);
        EXPECT_TRUE(norm(x, more).allclose(expected, 1e-5, 1e-5)) << kind << " " << rows << " " << type;
        const at::NoGradGuard no_grad;
        for (const Tensor& each : {x, x.contiguous()})
          EXPECT_TRUE(norm(each, more).allclose(expected, 1e-5, 1e-5)) << kind << " " << rows << " " << type;
      }
  const Tensor x = at::ones({2, 4});
  EXPECT_TRUE(Norm()(x, x).equal(x + x));
}

}  // namespace
}  // namespace lapse
