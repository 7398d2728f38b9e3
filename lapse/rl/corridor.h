// Corridor (Sukhbaatar et al. 2021, 5.2): remember the colour seen at the start until two doors come.
//
// A corridor of `length` cells in row 0, with blocks around it. The agent starts in column 0. In the cell above stands
// an object, red or blue, which blocks. Above and below the last column are the doors, one red and one blue. Entering a
// door ends the episode, with reward 1 if its colour is the object's; so does the step number 4 length + 50.
//
// An episode's draws: below(longest - shortest + 1), which added to shortest is its length; below(2), the object's
// colour; below(2), the upper door's colour. 0 is red, 1 is blue.
#pragma once

#include <memory>

#include "lapse/rl/environment.h"

namespace lapse {

std::unique_ptr<EnvironmentOptions> corridor_options();

}  // namespace lapse
