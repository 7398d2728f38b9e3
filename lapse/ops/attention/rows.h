// What every attention operator reads: queries at consecutive times, before packed rows of which each has a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <optional>

namespace lapse {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();  ///< as an age or a time: none, never

/// B samples of K queries at consecutive times read N packed rows. Rows of sample b are offsets[b] ... offsets[b+1]-1;
/// rows from offsets[B] on are spare and never read. Of a sample's rows those that some query sees come by strictly
/// ascending time; the others may have any time, and cost nothing beyond one pass over times. Times lie within -2^61
/// ... 2^61; rows that some query of the block sees hold finite numbers. Ages are counted in timesteps: a = (time of
/// query) - (time of row). By a span, of rows or heads, no query sees a row that is 2^30 or more old: on a GPU
/// calls of more than kFewOnGpu queries (cuda/plan.h) take greater ages for 2^30. The fused kernels take float32 and
/// bfloat16, on a GPU also float16; what else is floating goes to the references.
struct AttentionInputs {
  at::Tensor q;                     ///< [B, K, H, D] floating
  at::Tensor k, v;                  ///< [N, G, D], dtype of q; head h of the queries reads head h / (H / G) of these
  at::Tensor offsets;               ///< [B + 1] int64, on the CPU; all else may be on another device
  at::Tensor start;                 ///< [B] int64: time of each sample's first query
  at::Tensor time;                  ///< [N] int64
  std::optional<at::Tensor> until;  ///< [N] int64: time of the first query that no longer sees the row
};

}  // namespace lapse
