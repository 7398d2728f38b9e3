// What a training run will take of the machine's memory, before it takes it.
#pragma once

#include <cstdint>

#include "lapse/core/group.h"
#include "lapse/model/ends.h"
#include "lapse/train/config.h"

namespace lapse {

/// Bytes, in float32 (the formula is in memory_estimate.cpp). `least`: while no row of earlier blocks is remembered;
/// `most`: when every row is kept for as long as it could be read.
struct MemoryEstimate {
  int64_t parameters = 0;      ///< how many
  double weights = 0;          ///< parameters, their gradients and the optimiser's moments
  double least = 0, most = 0;  ///< of the whole process
};

/// Of a run whose model has these ends; of one process where several share the batch.
MemoryEstimate estimate_memory(const Config& config, const ModelEnds& ends, const Group& group = solo());

/// Bytes, beside the weights, for acting in so many environments at a time with a trained model, when every row is kept
/// for as long as it could be read, or for the longest episode.
double acting_bytes(const Config& config, const MethodOptions& method, int64_t streams);

/// Error, saying what would have to be smaller, if even the least is more than `available` bytes, those that the
/// process has already included.
void require_memory(const MemoryEstimate& estimate, int64_t available);

}  // namespace lapse
