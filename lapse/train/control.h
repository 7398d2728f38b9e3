// Problems of control: an environment, and an agent that is to earn as much as it can there.
#pragma once

#include <memory>

#include "lapse/train/problem.h"

namespace lapse {

/// Of the configuration's environment; see open_problem.
std::unique_ptr<Problem> control_problem(const Config& config);

/// What a score of episodes comes to: the environment's own measure first.
std::vector<Figure> episode_figures(const EnvironmentShape& shape, const Score& score);

}  // namespace lapse
