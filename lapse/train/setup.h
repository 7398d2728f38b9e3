// What a configuration describes, made: the model, and what learns.
#pragma once

#include <memory>

#include "lapse/train/memory_estimate.h"
#include "lapse/train/problem.h"

namespace lapse {

/// A model with the problem's objective, that learns with the group. `tuned`: the checkpoint of train.from, whose
/// weights and moments it begins with, and without warm-up; null: fresh weights.
std::unique_ptr<Learner> make_learner(const Config& config, const Problem& problem, const Checkpoint* tuned = nullptr,
                                      Group& group = solo());

/// Whether a run of it validates.
bool validates(const Config& config, const Problem& problem);
/// Error, now rather than hours later, if it does and a validation could say nothing.
void require_validation(const Config& config, const Problem& problem, const Group& group);

MemoryEstimate estimate_memory(const Config& config, const Problem& problem, const Group& group = solo());

}  // namespace lapse
