// ramp_attention by the compiled kernels: what call.py does from Python, with the same launches.
#pragma once

#include "lapse/ops/attention/ramp/ramp_attention.h"

namespace lapse::cuda {

/// Whether kernels were written for the call: float32, bfloat16 or float16, heads of at most 128 features, no empty
/// input.
bool ramp_attention_takes(const AttentionInputs& inputs);

RampOutputs ramp_attention(const AttentionInputs& inputs, const RampOptions& options);
RampGradients ramp_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                      const AttentionInputs& inputs, const RampOptions& options,
                                      const RampOutputs& outputs, const at::Tensor& grad_lse);

/// In one launch; spans are read as float32.
at::Tensor ramp_until(const at::Tensor& time, const at::Tensor& span, double ramp);

}  // namespace lapse::cuda
