// `lapse train --dry-run`: the first updates of a run, for their time and memory.
#pragma once

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
  int64_t updates = 0;            ///< that were tried; 0: none was wanted, or none would fit into memory
  double seconds_per_update = 0;  ///< median
  double steps_per_update = 0;    ///< mean of Update::steps
  double rows = 0;                ///< of a stream's memory after them, mean of the layers
  int64_t peak_memory = 0;        ///< bytes, of this process
};

/// The first updates of the run that `config` describes, for some seconds; 0: none. Errors as `train`.
Trial try_out(const Config& config, double seconds);

}  // namespace lapse
