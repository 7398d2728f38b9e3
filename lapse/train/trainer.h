// Training a language model by truncated back-propagation over blocks, memory carried.
#pragma once

#include <string>

#include "lapse/train/config.h"
#include "lapse/train/memory_estimate.h"

namespace lapse {

struct TrainerOptions {
  bool resume = false;
  bool quiet = false;
};

enum class Outcome { kFinished, kInterrupted };

/// Trains as `config` says, writing to the folder `run`: checkpoints/, metrics.jsonl, tensorboard/, config.toml. With
/// `resume` the run's newest whole checkpoint is continued to the bit (or the run begun, if it has none); what may
/// differ from its configuration are the run's length, paths and how often things are recorded. Error, besides bad
/// input: a loss or gradient that is not finite, naming the update and the last checkpoint.
Outcome train(Config& config, const fs::path& run, const TrainerOptions& options);

/// What a run would take, found out without writing anything.
struct Trial {
  std::string source;  ///< what it reads
  MemoryEstimate memory;
  int64_t available_memory = 0;   ///< bytes, with what the process has already
  int64_t updates = 0;            ///< that were tried; 0: they would not fit into memory
  double seconds_per_update = 0;  ///< median
  double rows = 0;                ///< of a stream's memory after them, mean of the layers
  int64_t peak_memory = 0;        ///< bytes, of this process
};

/// The first updates of the run that `config` describes, for some seconds. Errors as `train`.
Trial try_out(Config& config, double seconds);

}  // namespace lapse
