// How a call of ramp_attention is cut into work: which rows some query sees, and which task does what.
#pragma once

#include <cstdint>
#include <vector>

#include "lapse/ops/attention/options.h"

namespace lapse {

/// The rows of one sample that some query of the block sees, oldest first, filled up to a multiple of kTileRows with
/// rows that nobody sees. Rows that expired for every query are not here: to leave them out costs one pass over their
/// spans.
struct PlannedRows {
  int64_t count = 0;                 ///< without the filling
  std::vector<int64_t> index;        ///< in the packed table; -1: filling
  std::vector<int32_t> age;          ///< at the block's first query
  std::vector<int32_t> first, last;  ///< the first and the last query that sees the row
  std::vector<int32_t> full;         ///< the last query with m = 1; with head spans as if there were none
  std::vector<float> span;           ///< with row spans

  void reserve(int64_t n) {
    index.reserve(n), age.reserve(n), first.reserve(n), last.reserve(n), full.reserve(n), span.reserve(n);
  }
};

/// One key head of one sample, for all query heads that read it, against some of the sample's rows.
struct RowTask {
  int64_t sample, key_head;
  int64_t begin, end;     ///< rows of PlannedRows; multiples of kTileRows
  int64_t chunk, chunks;  ///< this is one of so many parts of the same sample and key head
};

/// Tasks depend on the inputs only, never on the number of threads, and so do sums over them.
struct RowPlan {
  std::vector<PlannedRows> rows;  ///< of each sample
  std::vector<RowTask> tasks;     ///< the chunks of a sample and key head follow each other
};
RowPlan plan_rows(const AttentionInputs& inputs, const CoreOptions& options);

}  // namespace lapse
