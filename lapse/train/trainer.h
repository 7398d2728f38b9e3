// Training by truncated back-propagation over blocks, memory carried.
#pragma once

#include "lapse/train/config.h"

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

}  // namespace lapse
