#include "lapse/train/objectives.h"

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/train/actor_critic.h"

namespace lapse {

const std::vector<ObjectiveEntry>& objective_table() {
  static const std::vector<ObjectiveEntry> table = {
      {"language_modelling", "nats per predicted token", false, [](const Config&) { return language_modelling(); }},
      {"scored_task", "the same where perhaps none is scored, 1e-6 added to their number", false,
       [](const Config&) { return scored_task(); }},
      {"actor_critic", "policy, value and entropy", true, [](const Config& c) { return actor_critic(c.actor_critic); }},
  };
  return table;
}

const ObjectiveEntry& objective_of(const Config& config) {
  std::string name = config.train.objective;
  if (name == "usual")
    name = config.environment() ? "actor_critic" : config.task() ? "scored_task" : "language_modelling";
  return *std::ranges::find(objective_table(), name, &ObjectiveEntry::name);  // there is one: Config's fields say so
}

}  // namespace lapse
