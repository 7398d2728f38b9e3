// Passive T-Maze (Ni et al. 2023): remember the goal seen in the first step until the junction.
//
// A corridor of cells x = 0 ... length, y = 0, with an arm at each side of its end: y = +1 (up) and y = -1 (down). The
// goal is one of the two arms. The agent starts at x = 0 and sees the goal there, in the first observation only. At x =
// length it sees that this is the junction. An episode has exactly length + 1 steps. After step t, counted from 1, the
// reward is -penalty / length if x < t, and after the last one 1 if the agent is in the goal's arm, else 0. A move into
// a wall does nothing. Only the last step can lead into an arm, so that an agent never sees one from within.
//
// An episode's draws, in this order: if `shortest` is less than the length, uniform(), its own length, log-uniform in
// shortest ... length; below(2), the goal: 0 is down, 1 is up.
#pragma once

#include <memory>

#include "lapse/rl/environment.h"

namespace lapse {

std::unique_ptr<EnvironmentOptions> t_maze_options();

}  // namespace lapse
