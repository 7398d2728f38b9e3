// What a configuration describes, made: what is read, and the model that learns from it.
#pragma once

#include <memory>

#include "lapse/train/checkpoint.h"
#include "lapse/train/learner.h"
#include "lapse/train/memory_estimate.h"

namespace lapse {

/// The configuration's task, or its text, with the vocabulary of the run to go on from (null: of none). Error if that
/// run reads other tokens.
std::unique_ptr<Source> open_source(const Config& config, const Checkpoint* from);

/// A model of fresh weights, with the objective that suits a task or a text. Fine-tuning (train.from) has no warm-up.
std::unique_ptr<Learner> make_learner(const Config& config, const Source& source);

MemoryEstimate estimate_memory(const Config& config, const Source& source);

}  // namespace lapse
