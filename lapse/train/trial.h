// `lapse train --dry-run`: the first updates of a run, for their time and memory.
#pragma once

#include <functional>
#include <string>

#include "lapse/train/memory_estimate.h"

namespace lapse {

/// What a run would take, found out without writing anything.
struct Trial {
  std::string source;   ///< what it reads
  std::string unit;     ///< what a timestep is: "token", "step"
  std::string refused;  ///< what training would refuse of the validation part; empty: nothing
  MemoryEstimate memory;
  int64_t available_memory = 0;   ///< bytes, with what the process has already
  int64_t updates = 0;            ///< that were tried; 0: none was wanted, or not even one stream would fit into memory
  int64_t parts = 1;              ///< where the batch does not fit: one of so many parts of it was tried; 0: none fits
  double seconds_per_update = 0;  ///< median; where parts were tried, of all of them
  double steps_per_update = 0;    ///< mean of Update::steps
  double rows = 0;                ///< of a stream's memory after them, mean of the layers
  int64_t peak_memory = 0;        ///< bytes, of this process
  int64_t peak_on_device = 0;     ///< bytes of tensors on a GPU; 0: none
};

/// The first updates of the run that `config` describes, for some seconds; 0: none. `told` gets what is known before
/// them. Errors as `train`, but for a run that is too large for the memory.
Trial try_out(const Config& config, double seconds, const std::function<void(const Trial&)>& told);

}  // namespace lapse
