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

/// What of targets [B, K] is scored.
struct Scored {
  at::Tensor places;  ///< [P] int64: the positions b K + t, for BlockOptions::places; undefined: all
  at::Tensor target;  ///< [P] int64: what is right there
};
/// On `device`. It is found where the targets are: on the CPU without waiting for a GPU.
Scored scored(const at::Tensor& target, at::Device device);

/// Of logits [P, V], or [B, K, V], against as many targets [P]. The logits are given away (ops/dense/cross_entropy.h).
Likelihood likelihood(at::Tensor&& logits, const at::Tensor& target, const LikelihoodOptions& options);

/// Error unless a sum of log-likelihoods is finite.
void require_finite(double nats);

}  // namespace lapse
