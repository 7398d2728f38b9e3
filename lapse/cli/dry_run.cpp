// `lapse train --dry-run`: what a run would take.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "lapse/cli/verbs.h"
#include "lapse/core/progress.h"
#include "lapse/train/trial.h"

namespace lapse {
namespace {

using Json = nlohmann::ordered_json;

void print(const Config& config, const Trial& trial) {
  const ModelConfig& m = config.model;
  const std::string encoder = m.encoder_layers > 0 ? fmt::format(" and {} of an encoder", m.encoder_layers) : "";
  std::cout << fmt::format("model       {} parameters: {} layers{} of width {}, {}\n", trial.memory.parameters,
                           m.layers, encoder, m.width, config.method_name)
            << fmt::format("data        {}\n", trial.source)
            << fmt::format("an update   {} x {} {}s\n", config.train.batch, config.train.block, trial.unit)
            << fmt::format(
                   "memory      about {} in use at first, {} once memories are full (estimates); {} are free here\n",
                   byte_size(trial.memory.least), byte_size(trial.memory.most),
                   byte_size(static_cast<double>(trial.available_memory)));
  if (trial.updates == 0) return;
  std::cout
      << fmt::format(
             "tried       {} updates: {:.0f} ms each (median), {:.0f} {}s/s, peak memory {} with what was freed\n",
             trial.updates, 1000 * trial.seconds_per_update, trial.steps_per_update / trial.seconds_per_update,
             trial.unit, byte_size(static_cast<double>(trial.peak_memory)))
      << fmt::format("            {:.0f} rows in a layer were then remembered; time grows with them\n", trial.rows)
      << fmt::format("the run     {} updates: about {}, without validation\n", config.train.updates,
                     duration(trial.seconds_per_update * static_cast<double>(config.train.updates)));
}

Json to_json(const Config& config, const Trial& trial) {
  Json json = {{"parameters", trial.memory.parameters},      {"memory_weights", trial.memory.weights},
               {"memory_least", trial.memory.least},         {"memory_most", trial.memory.most},
               {"memory_available", trial.available_memory}, {"updates_tried", trial.updates}};
  if (!trial.refused.empty()) json["refused"] = trial.refused;
  if (trial.updates > 0)
    json.update({{trial.unit + "s_per_update", trial.steps_per_update},
                 {"ms_per_update", 1000 * trial.seconds_per_update},
                 {"peak_memory", trial.peak_memory},
                 {"rows_remembered", trial.rows},
                 {"seconds_of_the_run", trial.seconds_per_update * static_cast<double>(config.train.updates)}});
  return json;
}

}  // namespace

int dry_run(const Config& config, double seconds, bool json) {
  const Trial trial = try_out(config, seconds);
  if (json)
    std::cout << to_json(config, trial).dump(2) << '\n';
  else
    print(config, trial);
  std::cout.flush();
  if (!trial.refused.empty()) std::cerr << "lapse: warning: training would refuse this: " << trial.refused << '\n';
  require_memory(trial.memory, trial.available_memory);
  return 0;
}

}  // namespace lapse
