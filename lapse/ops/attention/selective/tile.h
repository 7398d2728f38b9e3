// The arithmetic of selective attention between its matrix products: from one tile of scores to the masking F that all
// heads share, and back. No torch here.
#pragma once

#include "lapse/ops/attention/tile.h"

namespace lapse {

/// Scores, rows by queries, of the head (or of the form) that selects. F is counted in the heads' scores, so that it
/// is subtracted as it is.
struct SelectiveTile {
  ScoreTile scores;     ///< its logit, span, masking and dropout play no part
  const int32_t* open;  ///< [rows]: the first query that can mask the row
  bool gated;           ///< false: every query can mask every row
  float factor;         ///< from these scores to the heads'
  float cap;            ///< in the heads' scores
  bool relu, shift;
};

/// sums [rows] += the sum of S over the queries.
void selective_tile_sums(const SelectiveTile& tile, const float* score, float* sums);

/// masking [rows][queries] = F, from `before` [rows], that for the first query. memory [queries]: 1 - min(F, cap) / cap
/// of the rows that a query sees is added, unless null.
void selective_tile_masking(const SelectiveTile& tile, const float* score, const float* before, float* masking,
                            float* memory);

/// The gradient of logits through F, added to `grad` [rows][queries]. `sum` [rows][queries]: the gradients of all
/// heads' logits; memory [queries]: that of `memory` above, divided by tau; later [rows]: the sum of dF over all later
/// queries, to which these are added.
void selective_tile_backward(const SelectiveTile& tile, const float* score, const float* masking, const float* sum,
                             const float* memory, float* later, float* grad);

/// The first i of n, a multiple of 16, where x_i + held_i is largest; held: 0, or -inf for rows out of question. Where
/// nothing is larger than -inf, the first with held 0, or -1.
int64_t selective_largest(const float* x, const float* held, int64_t n);

}  // namespace lapse
