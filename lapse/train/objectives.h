// Which objectives there are: train.objective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/train/config.h"
#include "lapse/train/objective.h"

namespace lapse {

struct ObjectiveEntry {
  std::string name, help;
  bool acts;                            ///< for agents in environments; else for what is predicted
  bool (*usual)(const Config& config);  ///< "usual" is the first entry for which this holds
  std::unique_ptr<Objective> (*make)(const Config& config);
};
const std::vector<ObjectiveEntry>& objective_table();

/// The one that train.objective names; "usual": what is usual for what the run reads.
const ObjectiveEntry& objective_of(const Config& config);

}  // namespace lapse
