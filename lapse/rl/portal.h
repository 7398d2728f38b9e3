// Multi-Room Portal (Sukhbaatar et al. 2021, 5.2): find out, and remember, which door of each room leads on.
//
// A room has 5 x 5 cells with blocks around them. In its top row, in columns 1 and 3 of 0 ... 4, are two doors of
// different colours. Of each room's doors one leads to the next room, the other back to room 1; the agent arrives in
// the middle of the room. Colours and right doors stay for the episode. Leaving room k by the right door gives reward
// 0.1 k. An episode ends with the last mistake that is allowed in one room, in the last room, or after most_steps. The
// room's number is seen in the agent's own cell. The last room has neither doors nor a number: nothing of it is seen.
// The doors' places, the start and the number of colours are ours.
//
// An episode's draws, for each room but the last: below(colours), the left door's colour; below(colours - 1), how many
// colours less one further, in a circle, the right door's is; below(2), the good door: 0 is left, 1 is right.
#pragma once

#include <memory>

#include "lapse/rl/environment.h"

namespace lapse {

std::unique_ptr<EnvironmentOptions> portal_options();

}  // namespace lapse
