// Problems of prediction: what comes next in a text, or what a task asks for.
#pragma once

#include <memory>

#include "lapse/train/problem.h"

namespace lapse {

/// Of the configuration's task, or else its text; see open_problem.
std::unique_ptr<Problem> prediction_problem(const Config& config, const Checkpoint* from);

}  // namespace lapse
