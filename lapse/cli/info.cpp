#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/progress.h"
#include "lapse/ops/aten.h"
#include "lapse/train/history.h"
#include "lapse/train/metrics.h"
#include "lapse/train/run_folder.h"

namespace lapse {
namespace {

/// Per layer: rows held for the next query, without its own, per stream on average and at most, and what the method
/// tells of all.
Json describe_memory(const Transformer& model, const std::vector<ModelMemory>& parts) {
  Json layers = Json::array();
  for (size_t l = 0; l < model.layers().size(); ++l) {
    int64_t rows = 0, streams = 0, longest = 0;
    std::map<std::string, std::vector<at::Tensor>> told;
    for (const auto& part : parts) {
      const auto& table = part.layers[l];
      const at::Tensor alive = model.layers()[l].attention().alive(table, part.clock);
      const at::Tensor sizes = at::bincount(table.sample().masked_select(alive), {}, table.samples()).to(at::kCPU);
      rows += sizes.sum().item<int64_t>(), streams += table.samples();
      longest = std::max(longest, sizes.max().item<int64_t>());
      for (auto& [name, values] : model.layers()[l].attention().tell(table)) told[name].push_back(values);
    }
    Json layer = {{"memory_mean", static_cast<double>(rows) / static_cast<double>(streams)}, {"memory_max", longest}};
    for (const auto& [name, values] : told) {
      const at::Tensor all = lapse::cat(values).to(at::kDouble);
      layer[name + "_mean"] = all.mean().item<double>(), layer[name + "_max"] = all.max().item<double>();
    }
    layers.push_back(layer);
  }
  return layers;
}

/// An empty layer has fewer numbers than others.
void print_layers(const Json& info) {
  std::vector<std::string> names;
  for (const Json& layer : info["layers"])
    for (const auto& [name, value] : layer.items())
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  std::cout << "\nthe rows that the training streams hold at this update\nlayer";
  const auto width = [](const std::string& name) { return std::max<size_t>(14, name.size() + 2); };
  for (const auto& name : names) std::cout << fmt::format("{:>{}}", name, width(name));
  std::cout << '\n';
  for (size_t l = 0; l < info["layers"].size(); ++l) {
    std::cout << fmt::format("{:<5}", l);
    const Json& layer = info["layers"][l];
    for (const auto& name : names)
      std::cout << (layer.contains(name) ? fmt::format("{:>{}.1f}", layer[name].get<double>(), width(name))
                                         : fmt::format("{:>{}}", "-", width(name)));
    std::cout << '\n';
  }
}

/// "  update 250  loss 2.31": the numbers of an object.
std::string numbers_of(const Json& line) {
  std::string text;
  for (const auto& [name, value] : line.items()) {
    if (value.is_number_integer()) text += fmt::format("  {} {:<8}", name, value.get<int64_t>());
    if (value.is_number_float()) text += fmt::format("  {} {:<8.5g}", name, value.get<double>());
  }
  return text;
}

/// What the model reads.
std::string read_by(const Json& info) {
  if (!info.contains("environment"))
    return fmt::format("vocabulary of {} ({})", info["vocabulary"].get<int64_t>(), info["unit"].get<std::string>());
  const Json& e = info["environment"];
  return fmt::format("acts in {}: {} cells of {} words are seen, actions {}, an episode's score is \"{}\"",
                     e["name"].get<std::string>(), e["cells"].get<int64_t>(), info["vocabulary"].get<int64_t>(),
                     fmt::join(e["actions"].get<std::vector<std::string>>(), ", "), e["score"].get<std::string>());
}

void print(const Json& info, const Config& config) {
  std::cout << fmt::format("{}\n{} parameters; {}; {}; {} updates\n", info["checkpoint"].get<std::string>(),
                           info["parameters"].get<int64_t>(), info["method"].get<std::string>(), read_by(info),
                           info["update"].get<int64_t>())
            << fmt::format("memory carried by the streams: {}\n", byte_size(info["memory_bytes"].get<double>()));
  if (info["memory_bytes"] == 0)
    std::cout << (config.windows() ? "nothing is carried between blocks" : "the streams begin anew at this update")
              << "; `lapse eval` says how much is held while they are read\n";
  else
    print_layers(info);
  if (!info["history"].empty()) std::cout << "\nvalidation\n";
  for (const auto& entry : info["history"]) std::cout << numbers_of(entry) << '\n';
  if (!info["training"].is_null()) std::cout << "\ntraining, last line\n" << numbers_of(info["training"]) << '\n';
  std::cout << "\nconfiguration, without what the run does not use (config.toml has all)\n" << config.used_toml();
}

int run(const std::string& path, bool json) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  const auto model = checkpoint.model();
  const auto memory = checkpoint.memory(*model);
  const std::string origin = checkpoint.path().string() + ", its state";
  const Json state = parse_json(checkpoint.state(), origin);
  const RunHistory history = history_of(JsonObject(state, origin));
  int64_t bytes = 0;
  for (const auto& part : memory) bytes += part.bytes();
  Json info = {{"checkpoint", checkpoint.path().string()},
               {"parameters", model->parameter_count()},
               {"method", checkpoint.config().method_name},
               {"unit", checkpoint.vocabulary().unit().name},
               {"vocabulary", checkpoint.vocabulary().size()},
               {"update", history.update},
               {"memory_bytes", bytes},
               {"layers", describe_memory(*model, memory)},
               {"history", history.validations},
               {"training", newest_of_training(run_folder(path), history.update)},
               {"config", checkpoint.config().to_toml()}};
  if (const EnvironmentOptions* environment = checkpoint.config().environment()) {
    const EnvironmentShape shape = environment->shape();
    info["environment"] = {{"name", environment->name()},    {"cells", shape.cells},
                           {"actions", shape.actions},       {"score", shape.score},
                           {"best_score", shape.best_score}, {"most_steps", shape.most_steps}};
  }
  if (json)
    std::cout << to_text(info, 2) << '\n';
  else
    print(info, checkpoint.config());
  return 0;
}

}  // namespace

void add_info(const Command& program, Action& action) {
  const Command verb =
      program.add_verb("info", "Describe a run or checkpoint: parameters, method, spans, memory, history");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  verb.add_option("run", *path, "folder of a run, or one of its checkpoints").required();
  verb.add_flag("--json", *json, "print one JSON object");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("end other programs", [=] { return run(*path, *json); });
  });
}

}  // namespace lapse
