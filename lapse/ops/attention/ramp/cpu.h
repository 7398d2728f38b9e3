// The CPU's kernels of ramp_attention beside the reference. Inputs of kernels are checked; autograd is off.
#pragma once

#include "lapse/ops/attention/ramp/ramp_attention.h"

namespace lapse {

/// In tiles of 64 rows by up to 64 queries, for float32 and bfloat16 inputs; computes in bfloat16 (with float32 sums)
/// if asked to, else in float32.
RampOutputs ramp_attention_tiled(const AttentionInputs& inputs, const RampOptions& options, bool bfloat16);
RampGradients ramp_attention_backward_tiled(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                            const AttentionInputs& inputs, const RampOptions& options,
                                            const RampOutputs& outputs, const at::Tensor& grad_lse, bool bfloat16);

/// Whether ramp_attention_decode takes these: a few queries in float32 or bfloat16, without head spans and dropout.
bool ramp_attention_decodes(const AttentionInputs& inputs, const RampOptions& options);
/// Sums in float32; `out` has q's type.
RampOutputs ramp_attention_decode(const AttentionInputs& inputs, const RampOptions& options);

}  // namespace lapse
