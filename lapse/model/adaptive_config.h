// Options of the adaptive input and softmax: the section [adaptive].
#pragma once

#include <vector>

#include "lapse/core/config.h"

namespace lapse {

/// What model/bands.h makes of them.
struct AdaptiveConfig {
  std::vector<int64_t> cutoffs;
  int64_t factor = 4;
  bool project_first = false;
  bool tied = true;

  Fields fields();
};

}  // namespace lapse
