// selective_attention and selective_prune by the compiled kernels: what call.py does from Python, with the same
// launches.
#pragma once

#include "lapse/ops/attention/selective/selective_attention.h"

namespace lapse::cuda {

/// Whether kernels were written for the call: float32, bfloat16 or float16, heads and select_q of at most 128 features,
/// no empty input.
bool selective_attention_takes(const AttentionInputs& inputs, const SelectiveOptions& options);

SelectiveOutputs selective_attention(const AttentionInputs& inputs, const SelectiveOptions& options);
SelectiveGradients selective_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_memory,
                                                const AttentionInputs& inputs, const SelectiveOptions& options,
                                                const SelectiveOutputs& outputs);
at::Tensor selective_prune(const AttentionInputs& inputs, const SelectiveOptions& options, int64_t budget);

}  // namespace lapse::cuda
