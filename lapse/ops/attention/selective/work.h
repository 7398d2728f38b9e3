// What the forward and the backward pass of the tiled selective_attention share: a call as one of ramp_attention, with
// what selects beside it.
#pragma once

#include <optional>

#include "lapse/ops/attention/selective/selective_attention.h"
#include "lapse/ops/attention/selective/tile.h"
#include "lapse/ops/attention/work.h"

namespace lapse {

template <class T>
class SelectiveCall {
 public:
  SelectiveCall(const AttentionInputs& inputs, const SelectiveOptions& options);
  SelectiveCall(const SelectiveCall&) = delete;

  const SelectiveOptions& options;

 private:
  const CoreOptions heads_options_, form_options_;

 public:
  const TiledCall<T> heads;
  const std::optional<TiledCall<T>> form;  ///< select_q and select_k as a call of one head
  const float unit;                        ///< that of the heads: F is counted in their scores

  /// Its head 0 selects.
  const TiledCall<T>& selects() const { return form ? *form : heads; }
  const PlannedRows& rows(int64_t sample) const { return heads.plan.rows[sample]; }
  int64_t tiles(int64_t sample) const { return static_cast<int64_t>(rows(sample).index.size()) / kTileRows; }

  /// The blocks of queries that see any of rows [begin, end) of a sample's plan: from the first to before the second.
  std::pair<int64_t, int64_t> blocks(int64_t sample, int64_t begin, int64_t end) const;

  /// Calls f(begin, end) for all rows of the table that no query sees.
  template <class F>
  void for_unseen(const F& f) const {
    int64_t next = 0;
    for (const PlannedRows& rows : heads.plan.rows)
      for (int64_t i = 0; i < rows.count; ++i) {
        if (rows.index[i] > next) f(next, rows.index[i]);
        next = rows.index[i] + 1;
      }
    if (next < heads.N) f(next, heads.N);
  }

  /// F of rows [begin, end) before the block, in scores; 0 for rows that only fill a tile up.
  void masking_before(int64_t sample, int64_t begin, int64_t end, float* to) const;

  /// `scores`: the tile of what selects that begins with row `begin` of the sample's plan.
  SelectiveTile tile(const ScoreTile& scores, int64_t sample, int64_t begin) const;

 private:
  at::Tensor masking_;                      // [N] float32, or undefined
  std::vector<std::vector<int32_t>> open_;  // [sample][row of the plan]: the first query that can mask the row
};

}  // namespace lapse
