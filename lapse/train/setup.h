// What a configuration describes, made: the model, and what learns.
#pragma once

#include <memory>

#include "lapse/train/memory_estimate.h"
#include "lapse/train/problem.h"

namespace lapse {

/// A model of fresh weights, with the problem's objective, that learns with the group. Fine-tuning (train.from) has no
/// warm-up.
std::unique_ptr<Learner> make_learner(const Config& config, const Problem& problem, Group& group = solo());

MemoryEstimate estimate_memory(const Config& config, const Problem& problem, const Group& group = solo());

}  // namespace lapse
