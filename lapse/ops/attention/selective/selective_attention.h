// Softmax attention in which tokens mask others for the tokens after them (Leviathan et al. 2024; docs/equations.md,
// "Selective attention"). The masking F is shared by the heads and goes on from block to block as one sum per row.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lapse/ops/attention/options.h"

namespace lapse {

struct SelectiveOptions {
  std::optional<at::Tensor> masking;   ///< [N]: F of each row from queries before this block; absent: 0. No gradient.
  std::optional<at::Tensor> first;     ///< [N] bool: the first row of a stream, document or episode; absent: none is
  std::optional<at::Tensor> select_q;  ///< [B, K, E] and [N, E]: S comes from these rather than from head 0
  std::optional<at::Tensor> select_k;
  std::optional<at::Tensor> position;  ///< [P, D]: row a-1 is p_a, the embedding of age a = 1 ... P
  std::optional<at::Tensor> age_bias;  ///< [H, A]: added to the logits of rows of age bias_age ... bias_age + A - 1
  std::optional<at::Tensor> seed;      ///< [1] int64, needed with dropout
  int64_t bias_age = 0;                ///< younger rows take the table's first column, older ones its last
  std::optional<double> scale;         ///< of q . k; absent: 1 / sqrt(D)
  int64_t max_age = kNoLimit;          ///< a query reads rows of age 0 ... max_age, never later ones
  double dropout = 0;                  ///< in [0, 1): on the weights, scaled by 1 / (1 - dropout)
  double cap = 1;                      ///< tau > 0 of `memory`
  // Ablations (A.4, A.5).
  bool shift = true;        ///< false: a query masks already for itself
  bool mask_first = false;  ///< true: rows that are `first` can be masked
  bool mask_self = false;   ///< true: a token can mask itself
  bool relu = true;         ///< false: S may be negative
};

struct SelectiveOutputs {
  at::Tensor out;      ///< [B, K, H, D]
  at::Tensor memory;   ///< [B, K]: M_t below
  at::Tensor masking;  ///< [N]: F for the first query after the block. No gradient.
  at::Tensor stats;    ///< [B, K, H]: log-sum-exp of the masked logits. No gradient; backward reads it.
};

/// Sections 3 and 4. With rows visible where 0 <= a <= max_age and t < until:
///
///   logit_ti = scale (q_t . k_i + q_t . p_a [1 <= a <= P]) + age_bias[clamp(a - bias_age, 0, A - 1)] of each head
///   S_ti     = relu(logit_ti of head 0), or relu(select_q_t . select_k_i / sqrt(E)); 0 for `first` rows, for a = 0
///              and where row i is not visible to t
///   F_ti     = masking_i + sum of S_ji over the block's queries j < t
///   out_t    = sum_i dropout(softmax_i(logit_ti - F_ti)) v_i
///   M_t      = sum over visible i of 1 - min(F_ti, cap) / cap
///
/// out_t is exactly 0 where nothing is visible. Differentiable in q, k, v, select_q, select_k, position and age_bias
/// through `out` and `memory`. dM/dF is 0 where F >= cap; dS/dlogit is 0 where logit <= 0. Errors (c10::Error) name the
/// ill-shaped input. In float32 logit - F is rounded by 2^-24 of F, and a weight by e to the power of that: by 0.6 %
/// where all rows that a query sees share an F of 1e5, and without a right digit from 1e7 on.
SelectiveOutputs selective_attention(const AttentionInputs& inputs, const SelectiveOptions& options);

struct SelectiveGradients {
  at::Tensor q, k, v;
  at::Tensor select_q, select_k, position, age_bias;  ///< empty (numel 0) where the input is absent
};

/// The backward pass, an operator of its own. `outputs`: out and stats of the forward pass.
SelectiveGradients selective_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_memory,
                                                const AttentionInputs& inputs, const SelectiveOptions& options,
                                                const SelectiveOutputs& outputs);

/// Context pruning (section 4): the time of the first query that no longer sees each row, [N] int64 (the largest
/// int64: every query of the block sees it), or inputs.until where that is sooner. Before query t reads, while it
/// would see more than `budget` rows, itself included, the one with the largest F_ti (without S_t, shift or not) goes;
/// of equals the oldest, `first` rows after the others; never t itself. What inputs.until and max_age already hide
/// takes no room. No gradient. budget >= 1.
at::Tensor selective_prune(const AttentionInputs& inputs, const SelectiveOptions& options, int64_t budget);

/// F_ti for pictures: [B, K, n], where every sample has n rows; 0 for what is not visible. No gradient.
at::Tensor selective_masking(const AttentionInputs& inputs, const SelectiveOptions& options);

/// The references: dense per sample, obviously right, any floating dtype. Kept to test every faster kernel against.
SelectiveOutputs selective_attention_reference(const AttentionInputs& inputs, const SelectiveOptions& options);
SelectiveGradients selective_attention_backward_reference(const at::Tensor& grad_out, const at::Tensor& grad_memory,
                                                          const AttentionInputs& inputs,
                                                          const SelectiveOptions& options,
                                                          const SelectiveOutputs& outputs);
at::Tensor selective_prune_reference(const AttentionInputs& inputs, const SelectiveOptions& options, int64_t budget);

/// A call as one of the core, which knows nothing of F.
CoreOptions core_options(const SelectiveOptions& options);

/// What every kernel calls first: autograd's kernel, which inference mode skips, does not. c10::Error for ill-shaped
/// inputs; looks at shapes and dtypes only.
void check_selective_attention(const AttentionInputs& inputs, const SelectiveOptions& options);
void check_selective_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_memory,
                                        const AttentionInputs& inputs, const SelectiveOptions& options,
                                        const SelectiveOutputs& outputs);
void check_selective_prune(const AttentionInputs& inputs, const SelectiveOptions& options, int64_t budget);

}  // namespace lapse
