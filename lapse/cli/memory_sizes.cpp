#include "lapse/cli/memory_sizes.h"

#include <fmt/format.h>

namespace lapse {

using Json = nlohmann::ordered_json;

Json memory_of(const std::vector<EvaluationResult::LayerMemory>& layers) {
  double mean = 0;
  Json each = Json::array();
  for (const auto& layer : layers) {
    mean += layer.mean / static_cast<double>(layers.size());
    each.push_back({{"memory_mean", layer.mean}, {"memory_max", layer.max}});
  }
  return {{"memory_mean", mean}, {"layers", each}};
}

std::string table_of_memory(const Json& json) {
  std::string text = "layer    memory mean    max\n";
  const auto& layers = json["layers"];
  for (size_t l = 0; l < layers.size(); ++l)
    text += fmt::format("{:<9}{:>11.1f}{:>7.0f}\n", l, layers[l]["memory_mean"].get<double>(),
                        layers[l]["memory_max"].get<double>());
  if (layers.size() > 1) text += fmt::format("{:<9}{:>11.1f}\n", "all", json["memory_mean"].get<double>());
  return text;
}

}  // namespace lapse
