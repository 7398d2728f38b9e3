// Softmax attention over remembered rows that fade out on a ramp: fixed, per-head and per-row spans in one operator.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/ops/attention/options.h"

namespace lapse {

struct RampOptions : CoreOptions {
  bool received = false;  ///< also return the attention that each row received
};

struct RampOutputs {
  at::Tensor out;       ///< [B, K, H, D]
  at::Tensor ramp_sum;  ///< [B]: sum over queries and rows of r = span - a where 0 < m < 1 (row spans; else 0)
  at::Tensor received;  ///< [N, H]: sum over queries of a', before dropout; empty unless asked for. No gradient.
  /// [B, K, H, 2]: log-sum-exp of the visible logits, and Z below; backward reads it. Without spans the first has a
  /// gradient, so that a softmax over these rows and others can be put together.
  at::Tensor stats;
};

/// Expire-Span, Eqs. 2, 4, 5 (docs/equations.md, 2-8):
///
///   logit_ti = scale (q_t . k_i + q_t . p_a [1 <= a <= P]) + logit_i + age_bias[clamp(a - bias_age, 0, A - 1)]
///   m_ti     = clamp(1 + (span - a) / R, 0, 1), or 1 without spans
///   a_ti     = softmax of logit over the visible rows: min_age <= a <= max_age, and t < until if that is given,
///              else m > 0 with row spans
///   a'_ti    = m a / (Z_t + 1e-8), Z_t = sum_i m a  (a' = a without spans)
///   out_t    = sum_i dropout(a'_ti) v_i, exactly 0 where nothing is visible
///
/// A few queries without gradients go to their kernel directly, not through libtorch's dispatcher, and profilers do not
/// see them. `ramp_sum` is the sum of Eq. 7 without its factor alpha / (R K). Differentiable in q, k, v, row_span,
/// head_span, position, logit and age_bias, through `out` and `ramp_sum`; dm/dspan = 1/R where 0 < m < 1, else 0.
/// Errors (c10::Error) name the ill-shaped input. A row whose span is NaN counts as one that nobody
/// sees, and the output of a head whose span is NaN is NaN for queries that see something; a logit below -1e28 may
/// count as -inf, and a query all of whose logits are -inf has no defined output. Gradients follow from the stored
/// log-sum-exp: where it is large, about 1e5 in float32, its rounding costs them digits, and where it is 1e9 all of
/// them. ramp_until (attention/expiry.h) gives the `until` that changes nothing.
RampOutputs ramp_attention(const AttentionInputs& inputs, const RampOptions& options);

struct RampGradients {
  at::Tensor q, k, v;
  at::Tensor row_span, head_span, position, logit, age_bias;  ///< empty (numel 0) where the input is absent
};

/// The backward pass, an operator of its own. grad_ramp_sum [B]; grad_lse [B, K, H], only without spans, or undefined.
/// `outputs` are those of the forward pass.
RampGradients ramp_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                      const AttentionInputs& inputs, const RampOptions& options,
                                      const RampOutputs& outputs, const at::Tensor& grad_lse = {});

/// The reference: dense per sample, obviously right, any floating dtype (bfloat16 computes in float32). Deterministic.
/// Kept to test every faster kernel against; the operator calls it where no faster kernel applies.
RampOutputs ramp_attention_reference(const AttentionInputs& inputs, const RampOptions& options);
RampGradients ramp_attention_backward_reference(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                                const AttentionInputs& inputs, const RampOptions& options,
                                                const RampOutputs& outputs, const at::Tensor& grad_lse = {});

/// What every kernel calls first: autograd's kernel, which inference mode skips, does not. c10::Error for ill-shaped
/// inputs; looks at shapes and dtypes only.
void check_ramp_attention(const AttentionInputs& inputs, const RampOptions& options);
void check_ramp_attention_backward(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                   const AttentionInputs& inputs, const RampOptions& options,
                                   const RampOutputs& outputs, const at::Tensor& grad_lse);

}  // namespace lapse
