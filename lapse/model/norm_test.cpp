// The norm of a few rows, as layers take it token by token.
#include "lapse/model/norm.h"

#include <ATen/ATen.h>
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
      Tensor y = at::empty_like(x);
      norm.of_few(x.const_data_ptr<float>(), more.const_data_ptr<float>(), rows, y.mutable_data_ptr<float>());
      EXPECT_TRUE(y.allclose(norm(x + more), 1e-5, 1e-5)) << kind << " " << rows;
      norm.of_few(x.const_data_ptr<float>(), nullptr, rows, y.mutable_data_ptr<float>());
      EXPECT_TRUE(y.allclose(norm(x), 1e-5, 1e-5)) << kind << " " << rows;
    }
}

}  // namespace
}  // namespace lapse
