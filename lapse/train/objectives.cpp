#include "lapse/train/objectives.h"

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/train/actor_critic.h"

namespace lapse {

const std::vector<ObjectiveEntry>& objective_table() {
  static const std::vector<ObjectiveEntry> table = {
      {"actor_critic",
       "policy, value and entropy",
       true,
       [](const Config& c) { return c.environment() != nullptr; },
       [](const Config& c) { return actor_critic(c.actor_critic); },
       {{"the entropy's weight (actor_critic.entropy_last)",
         [](const Config& c, double done) { return entropy_weight(c.actor_critic, done); }}}},
      {"scored_task", "nats of the scored tokens, divided by (their number + 1e-6), since a block may have none", false,
       [](const Config& c) { return c.task() != nullptr; }, [](const Config&) { return scored_task(); }},
      {"language_modelling", "nats per predicted token", false, [](const Config&) { return true; },
       [](const Config&) { return language_modelling(); }},
  };
  return table;
}

const ObjectiveEntry& objective_of(const Config& config) {
  const std::string& name = config.train.objective;  // in the table, or "usual": Config's fields say so
  return *std::ranges::find_if(objective_table(), [&](const ObjectiveEntry& entry) {
    return name == "usual" ? entry.usual(config) : entry.name == name;
  });
}

}  // namespace lapse
