// The table of environments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/rl/environment.h"

namespace lapse {

struct EnvironmentEntry {
  std::string name;
  std::string help;  ///< one line
  std::unique_ptr<EnvironmentOptions> (*options)();
};

const std::vector<EnvironmentEntry>& environment_table();

}  // namespace lapse
