// `lapse train --dry-run`: what a run would take.
#include <fmt/format.h>

#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/progress.h"
#include "lapse/data/spans.h"
#include "lapse/train/trial.h"

namespace lapse {
namespace {

std::string time_of(double seconds) {
  return seconds < 60 ? fmt::format("{:.0f} ms", 1000 * seconds) : duration(seconds);
}

std::string peak_of(const Trial& trial, bool on_cpu) {
  const std::string host = byte_size(static_cast<double>(trial.peak_memory));
  if (on_cpu) return fmt::format("peak memory {} (with what was freed since)", host);
  const std::string device =
      trial.peak_on_device > 0 ? fmt::format("{} on the device, ", byte_size(static_cast<double>(trial.peak_on_device)))
                               : "";
  return fmt::format("peak memory {}{} on the host (with what was freed since)", device, host);
}

/// What is known before the first update: on a model that takes long, or too much, this is all that is ever seen.
void print_size(const Config& config, const Trial& trial) {
  const ModelConfig& m = config.model;
  const std::string encoder = m.encoder_layers > 0 ? fmt::format(" and {} of an encoder", m.encoder_layers) : "";
  const std::string targets =
      config.data.corrupts_spans()
          ? fmt::format(" of sources, {} of targets", count_spans_of_input(config.train.block, config.data).target())
          : "";
  std::cout << fmt::format("model       {} parameters: {} layers{} of width {}, {}\n", trial.memory.parameters,
                           m.layers, encoder, m.width, config.method_name)
            << fmt::format("data        {}\n", trial.source)
            << fmt::format("an update   {} x {} {}s{}\n", config.train.batch, config.train.block, trial.unit, targets)
            << fmt::format(
                   "memory      about {} in use at first, {} once memories are full (estimates); {} are free {}\n",
                   byte_size(trial.memory.least), byte_size(trial.memory.most),
                   byte_size(static_cast<double>(trial.available_memory)),
                   config.train.device == "cpu" ? "here" : "on the device")
            << std::flush;
}

void print_times(const Config& config, const Trial& trial) {
  if (trial.updates == 0) return;
  if (trial.parts > 1)
    std::cout << fmt::format(
        "            large for that, so one of {} parts of the batch was tried; times are {} times its own\n",
        trial.parts, trial.parts);
  std::cout << fmt::format("tried       {} update{}: {} each (median), {:.0f} {}s/s, {}\n", trial.updates,
                           trial.updates == 1 ? "" : "s", time_of(trial.seconds_per_update),
                           trial.steps_per_update / trial.seconds_per_update, trial.unit,
                           peak_of(trial, config.train.device == "cpu"));
  if (!config.windows())
    std::cout << fmt::format("            {:.0f} rows in a layer were then remembered; time grows with them\n",
                             trial.rows);
  std::cout << fmt::format("the run     {} updates: about {}, without validation\n", config.train.updates,
                           duration(trial.seconds_per_update * static_cast<double>(config.train.updates)));
}

Json to_json(const Config& config, const Trial& trial) {
  Json json = {{"parameters", trial.memory.parameters},      {"memory_weights", trial.memory.weights},
               {"memory_least", trial.memory.least},         {"memory_most", trial.memory.most},
               {"memory_available", trial.available_memory}, {"updates_tried", trial.updates}};
  if (!trial.refused.empty()) json["refused"] = trial.refused;
  if (trial.peak_on_device > 0) json["peak_memory_on_device"] = trial.peak_on_device;
  if (trial.updates > 0)
    json.update({{trial.unit + "s_per_update", trial.steps_per_update},
                 {"parts_tried", trial.parts},
                 {"ms_per_update", 1000 * trial.seconds_per_update},
                 {"peak_memory", trial.peak_memory},
                 {"rows_remembered", trial.rows},
                 {"seconds_of_the_run", trial.seconds_per_update * static_cast<double>(config.train.updates)}});
  return json;
}

}  // namespace

int dry_run(const Config& config, double seconds, bool json) {
  const Trial trial = try_out(config, seconds, [&](const Trial& so_far) {
    if (!json) print_size(config, so_far);
  });
  if (json)
    std::cout << to_text(to_json(config, trial), 2) << '\n';
  else
    print_times(config, trial);
  std::cout.flush();
  if (!trial.refused.empty()) std::cerr << "lapse: warning: training would refuse this: " << trial.refused << '\n';
  try {
    require_memory(trial.memory, trial.available_memory);
  } catch (const Error& error) {
    std::cerr << "lapse: warning: training would refuse this here: " << error.what() << '\n';
  }
  return 0;
}

}  // namespace lapse
