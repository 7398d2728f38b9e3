// How a call of ramp_attention is cut into work: which rows some query sees, and which task does what.
#pragma once

#include <cstdint>
#include <vector>

#include "lapse/ops/ramp_attention.h"

namespace lapse {

/// The rows of one sample that some query of the block sees, oldest first, filled up to a multiple of kTileRows with
/// rows that nobody sees. Rows that expired for every query are not here: to leave them out costs one pass over their
/// spans.
struct RampRows {
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

/// One head of one sample against some of the sample's rows.
struct RampTask {
  int64_t sample, head;
  int64_t begin, end;     ///< rows of RampRows; multiples of kTileRows
  int64_t chunk, chunks;  ///< this is one of so many parts of the same sample and head
};

/// Tasks depend on the inputs only, never on the number of threads, and so do sums over them.
struct RampPlan {
  std::vector<RampRows> rows;   ///< of each sample
  std::vector<RampTask> tasks;  ///< the chunks of a sample and head follow each other
  int64_t largest = 0;          ///< most rows of a task
};
/// until [N] int64: the time of the first query that no longer sees the row.
RampPlan plan_ramp(const RampInputs& inputs, const RampOptions& options,
                   const std::optional<at::Tensor>& until = std::nullopt);

}  // namespace lapse
