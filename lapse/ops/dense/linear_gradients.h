// The gradients of ops/dense/linear.h, of contiguous float32 tensors on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lapse/ops/dense/matmul.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {

/// Of x [m, k], of the bias, and of the weights [n, k]. Saved are x, the bias, y where it went through relu, and the
/// weights. `rows`: those of x whose gradient is needed (LinearOptions::gradient_rows); empty: all. `scale`: of dropout
/// after relu, or 1. T: float, or at::BFloat16 for products in that type.
template <class T>
std::vector<at::Tensor> linear_gradients(const Received& r, std::vector<RowRange> rows, float scale);

}  // namespace lapse
