// Training by truncated back-propagation over blocks, memory carried.
#pragma once

#include <functional>

#include "lapse/core/group.h"
#include "lapse/model/transformer.h"
#include "lapse/train/config.h"

namespace lapse {

struct TrainerOptions {
  bool resume = false;
  bool quiet = false;
  Group& group = solo();  ///< who trains together: each rank calls `train`, rank 0 writes
};

enum class Outcome { kFinished, kInterrupted };

/// Trains as `config` says, writing to the folder `run`: checkpoints/, metrics.jsonl, tensorboard/, config.toml. With
/// `resume` the run's newest whole checkpoint is continued to the bit (or the run begun, if it has none); what may
/// differ from its configuration are the run's length, paths and how often things are recorded. Error, besides bad
/// input: a loss or gradient that is not finite, naming the update and the last checkpoint.
Outcome train(const Config& config, const fs::path& run, const TrainerOptions& options);

/// A run of these weights before its first update: to read, or to train with `resume`. Error if there is one in the
/// folder.
void begin_run(const Config& config, const fs::path& run, const std::function<void(Transformer& model)>& load_weights);

}  // namespace lapse
