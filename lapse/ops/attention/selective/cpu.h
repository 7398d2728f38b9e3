// The CPU's kernels of selective_attention beside the reference. Inputs are checked; autograd is off.
#pragma once

#include "lapse/ops/attention/selective/selective_attention.h"

namespace lapse {

/// In tiles of 64 rows by up to 64 queries, for float32 and bfloat16 inputs; computes in bfloat16 (with float32 sums)
/// if asked to, else in float32.
SelectiveOutputs selective_attention_tiled(const AttentionInputs& inputs, const SelectiveOptions& options,
                                           bool bfloat16);
SelectiveGradients selective_attention_backward_tiled(const at::Tensor& grad_out, const at::Tensor& grad_memory,
                                                      const AttentionInputs& inputs, const SelectiveOptions& options,
                                                      const SelectiveOutputs& outputs, bool bfloat16);

/// For a few queries, float32 and bfloat16 inputs, summed in float32; without dropout.
SelectiveOutputs selective_attention_decode(const AttentionInputs& inputs, const SelectiveOptions& options);

/// In float32, for any number of queries.
at::Tensor selective_prune_tiled(const AttentionInputs& inputs, const SelectiveOptions& options, int64_t budget);

}  // namespace lapse
