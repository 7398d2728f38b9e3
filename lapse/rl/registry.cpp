#include "lapse/rl/registry.h"

#include "lapse/rl/corridor.h"
#include "lapse/rl/portal.h"
#include "lapse/rl/t_maze.h"

namespace lapse {

const std::vector<EnvironmentEntry>& environment_table() {
  static const std::vector<EnvironmentEntry> table = {
      {"corridor", "take the door of the colour that was seen at the start (Sukhbaatar et al. 2021)", corridor_options},
      {"portal", "find and remember the right door of each room (Sukhbaatar et al. 2021)", portal_options},
      {"t_maze", "at the junction turn to the goal seen at the start (Ni et al. 2023: Passive T-Maze)", t_maze_options},
  };
  return table;
}

}  // namespace lapse
