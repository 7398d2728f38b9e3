#include "lapse/rl/registry.h"

#include "lapse/rl/corridor.h"

namespace lapse {

const std::vector<EnvironmentEntry>& environment_table() {
  static const std::vector<EnvironmentEntry> table = {
      {"corridor", "remember the colour seen at the start of a long corridor, and take the door of that colour",
       corridor_options},
  };
  return table;
}

}  // namespace lapse
