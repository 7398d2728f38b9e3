// How what a model predicts does against targets: sums and counts, from which every mean and figure follows.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// Targets of this value are not scored (PyTorch's ignore_index).
constexpr int64_t kNoTarget = -100;

struct Likelihood {
  at::Tensor nats;     ///< negative log-likelihoods, summed over the scored positions: a scalar, with gradient
  int64_t scored = 0;  ///< how many those are
  at::Tensor right;    ///< [scored] bool: the likeliest is the right one; undefined unless asked for
  at::Tensor each;     ///< [scored]: what `nats` sums up; undefined unless asked for
};

struct LikelihoodOptions {
  bool answers = false;   ///< fill Likelihood::right
  bool each = false;      ///< fill Likelihood::each
  bool bfloat16 = false;  ///< BlockOptions::bfloat16, where products are left to do
};

/// The positions b K + t of targets [B, K] that are scored, for BlockOptions::places: [P] int64; undefined if all are.
at::Tensor scored_places(const at::Tensor& target);

/// The targets [B, K] at these places, or all if they are undefined: [P].
at::Tensor scored_targets(const at::Tensor& target, const at::Tensor& places);

/// Of logits at these places against targets [B, K]: [P, V], or [B, K, V] where all are scored.
Likelihood likelihood(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& places,
                      const LikelihoodOptions& options);

/// Error unless a sum of log-likelihoods is finite.
void require_finite(double nats);

}  // namespace lapse
