#include "lapse/cli/memory_sizes.h"

#include <fmt/format.h>

namespace lapse {

using Json = nlohmann::ordered_json;

Json memory_of(const std::vector<EvaluationResult::LayerMemory>& layers) {
  double mean = 0;
  Json each = Json::array();
  for (const auto& layer : layers) {
    mean += layer.mean / static_cast<double>(layers.size());
    each.push_back(to_json(layer));
  }
  return {{"memory_mean", mean}, {"layers", each}};
}

std::string table_of_memory(const Json& json) {
  const auto& layers = json["layers"];
  std::vector<std::string> means = {"memory"};  // NAME of each NAME_mean and NAME_max
  for (const auto& [key, value] : layers[0].items())
    if (key.ends_with("_mean") && key != "memory_mean") means.push_back(key.substr(0, key.size() - 5));
  const auto width = [](const std::string& name) { return name == "memory" ? 11 : std::ssize(name) + 7; };
  std::string text = "layer    ";
  for (const auto& name : means) text += fmt::format("{:>{}}{:>7}", name + " mean", width(name), "max");
  text += '\n';
  for (size_t l = 0; l < layers.size(); ++l) {
    text += fmt::format("{:<9}", l);
    for (const auto& name : means)
      text += fmt::format("{:>{}.1f}{:>7.{}f}", layers[l].value(name + "_mean", 0.0), width(name),
                          layers[l].value(name + "_max", 0.0), name == "memory" ? 0 : 1);
    text += '\n';
  }
  if (layers.size() > 1) text += fmt::format("{:<9}{:>11.1f}\n", "all", json["memory_mean"].get<double>());
  return text;
}

}  // namespace lapse
