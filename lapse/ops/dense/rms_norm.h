// RMSNorm, one pass forward and one backward; libtorch's on the CPU is a chain of element-wise operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// y = x / sqrt(mean(x^2) + epsilon) weight over the last dimension; x [..., n], weight [n] of the same dtype.
/// Differentiable in both, once. float32 on the CPU by ops/dense/layer_passes.h; all else by at::rms_norm. c10::Error
/// for shapes and types that do not fit.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace lapse
