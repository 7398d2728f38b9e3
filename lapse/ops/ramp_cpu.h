// The CPU's kernels of ramp_attention beside the reference. Inputs are checked; autograd is off.
#pragma once

#include "lapse/ops/ramp_attention.h"

namespace lapse {

/// In tiles of 64 rows by up to 64 queries, for float32 and bfloat16 inputs; computes in bfloat16 (with float32 sums)
/// if asked to, else in float32.
RampOutputs ramp_attention_tiled(const RampInputs& inputs, const RampOptions& options, bool bfloat16);
RampGradients ramp_attention_backward_tiled(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                            const RampInputs& inputs, const RampOptions& options,
                                            const RampOutputs& outputs, const at::Tensor& grad_lse, bool bfloat16);

/// For a few queries, without head spans and dropout; sums in float32.
RampOutputs ramp_attention_decode(const RampInputs& inputs, const RampOptions& options);

}  // namespace lapse
