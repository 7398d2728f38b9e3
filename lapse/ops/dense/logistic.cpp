#include "lapse/ops/dense/logistic.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <vector>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/linear.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/dense/total.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {
namespace {

/// x + b, one number for all of x. Its gradient is a total.
at::Tensor plus_one_number(const at::Tensor& x, const at::Tensor& b) {
  const at::Tensor y = below_autograd([&] { return x + b; });
  if (!at::GradMode::is_enabled()) return y;
  return with_gradient({x, b}, y, {"logistic", {}, [](const Received& r) {
                                     return std::vector{r.gradients[0], total(r.gradients[0]).view({1})};
                                   }});
}

}  // namespace

at::Tensor logistic(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& b, const LogisticScale& scale) {
  TORCH_CHECK(b.dim() == 1 && b.size(0) == 1, "logistic: b must be [1], got ", b.sizes());
  const bool fits =
      weight.dim() == 1 && weight.is_contiguous() && weight.size(0) == x.size(1);  // else linear refuses it
  if (!fits || !few_rows(x, kSomeRows)) {
    const at::Tensor product = lapse::linear(x, weight.unsqueeze(0)).squeeze(1);
    return at::sigmoid(plus_one_number(product * (1 / scale.divisor), b * scale.bias)) * scale.bound;
  }
  at::Tensor y = empty_rows({x.size(0)});
  const double shift = scale.bias * b.const_data_ptr<float>()[0];
  for (int64_t i = 0; i < x.size(0); ++i) {
    const double product = dot(x.const_data_ptr<float>() + i * x.size(1), weight.const_data_ptr<float>(), x.size(1));
    y.mutable_data_ptr<float>()[i] =
        static_cast<float>(scale.bound / (1 + std::exp(-(product / scale.divisor + shift))));
  }
  return y;
}

}  // namespace lapse
