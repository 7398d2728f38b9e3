// The eager reference: attention with expiring spans as a PyTorch user writes it, of plain ATen operators on dense
// tensors, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "bench/call.h"

namespace lapse::bench {

struct EagerInputs {
  at::Tensor q;         ///< [B, K, H, D]
  at::Tensor k, v;      ///< [B, n, H, D]: rows at consecutive times, the queries' own the last K
  at::Tensor span;      ///< [B, n]
  at::Tensor position;  ///< [P, D]
  double ramp = 1;
  at::Tensor first = {};  ///< [B, K] int64: the first row that each query may read; undefined: 0
};

struct EagerOutputs {
  at::Tensor out;       ///< [B, K, H, D]
  at::Tensor ramp_sum;  ///< [B]
};

EagerOutputs eager_attention(const EagerInputs& x);

/// A call of the operator in eager form: forward, and backward into leaves.
class EagerCall {
 public:
  explicit EagerCall(const Call& call);  ///< all samples with the same number of rows
  void run();

  EagerInputs leaves;
  EagerOutputs outputs;  ///< of the last run

 private:
  at::Tensor grad_out_, grad_ramp_sum_;
};

/// libtorch's own fused attention at the same shapes: without spans, positions and mask.
class FusedLibtorchCall {
 public:
  explicit FusedLibtorchCall(const Call& call);
  void run();

 private:
  at::Tensor q_, k_, v_, grad_out_;  // [B, H, ...]
};

/// Error if the eager reference and the operator differ, forward or backward, by more than 1e-5 of the largest value.
void check_eager();

}  // namespace lapse::bench
