#include "lapse/rl/registry.h"

namespace lapse {

const std::vector<EnvironmentEntry>& environment_table() {
  static const std::vector<EnvironmentEntry> table = {};
  return table;
}

}  // namespace lapse
