// Calls of the operator to measure: random inputs of given shapes, and what they count for.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lapse/ops/attention/ramp/ramp_attention.h"

namespace lapse::bench {

struct CallShape {
  std::vector<int64_t> rows;  ///< of each sample, the block's own included; consecutive times
  int64_t queries, heads, head_dim;
  double expired = 0;  ///< this share of all rows has m = 0 for every query; the others have m = 1
  at::ScalarType type = at::kFloat;
};

/// A call forward and backward, with row spans and positions for ages 1 ... queries.
struct Call {
  AttentionInputs inputs;
  RampOptions options;
  at::Tensor grad_out, grad_ramp_sum;

  void run() const;  ///< without autograd's bookkeeping

  /// Forward + backward: 14 D per head and pair of the rectangle queries x rows (2 products forward, and 5 backward
  /// with the one that recomputes), 6 D per head and (query, age <= P) (1 forward, 2 backward). Rows with m = 0 for
  /// every query do not count; pairs in the future do.
  double flops(bool with_positions = true) const;

  /// The pairs with m > 0 and age >= 1: their share of the rectangle, and the FLOPs over them alone.
  struct Visible {
    double share, flops;
  };
  Visible visible() const;
};

Call make_call(const CallShape& shape);

/// The same without the rows that no query sees.
Call survivors(const Call& call);

}  // namespace lapse::bench
