// Linear layers that multiply in bfloat16 on a device beside the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// x [m, in] w [out, in]^T, both float32: rounded to bfloat16, multiplied, and summed in float32: [m, out].
/// Differentiable in both; what comes back is rounded and multiplied likewise. No second derivatives.
at::Tensor rounded_linear(const at::Tensor& x, const at::Tensor& weight);

}  // namespace lapse
