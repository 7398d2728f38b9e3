// A number between 0 and a bound for each row: a logistic function of a product with one vector.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

struct LogisticScale {
  double bound = 1, divisor = 1, bias = 1;
};

/// bound sigmoid((x . weight) / divisor + bias b) of rows x [n, k]: [n]. weight [k], b [1]. Differentiable in all
/// three.
at::Tensor logistic(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& b, const LogisticScale& scale);

}  // namespace lapse
