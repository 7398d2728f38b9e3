// SwiGLU's gate, one pass forward and one backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// silu(gate) x, silu(a) = a sigmoid(a), of two tensors of one shape and dtype. Differentiable in both, once. float32
/// on the CPU by ops/dense/layer_passes.h; all else by libtorch. c10::Error if shapes or types differ.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& x);

}  // namespace lapse
