// LayerNorm of a sum, as after a residual connection: one pass forward and one backward, whose sums do not depend on
// the number of threads. libtorch's add up weight gradients thread by thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// y = (s - mean(s)) / sqrt(variance(s) + epsilon) weight + bias over the last dimension, s = x + more (x alone if
/// `more` is undefined); x, more [..., n], weight and bias [n] of the same dtype. Differentiable in all, once. float32
/// on the CPU by ops/dense/layer_passes.h; all else by at::layer_norm. c10::Error for shapes and types that do not fit.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon);

}  // namespace lapse
