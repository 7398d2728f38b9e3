// Which objectives there are: train.objective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/train/config.h"
#include "lapse/train/objective.h"

namespace lapse {

/// A number of the objective that changes in the course of a run.
struct ObjectiveCourse {
  std::string name;                                    ///< "the entropy's weight"
  double (*value)(const Config& config, double done);  ///< after this share of the run's updates, 0 ... 1
};

struct ObjectiveEntry {
  std::string name, help;
  bool acts;                            ///< for agents in environments; else for what is predicted
  bool (*usual)(const Config& config);  ///< "usual" is the first entry for which this holds
  std::unique_ptr<Objective> (*make)(const Config& config);
  std::vector<ObjectiveCourse> courses = {};
};
const std::vector<ObjectiveEntry>& objective_table();

/// The one that train.objective names; "usual": what is usual for what the run reads.
const ObjectiveEntry& objective_of(const Config& config);

}  // namespace lapse
