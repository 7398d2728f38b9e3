// Memory sizes in what `lapse eval` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lapse/train/evaluate.h"

namespace lapse {

/// "memory_mean", of all layers, and "layers": of each what to_json has.
nlohmann::ordered_json memory_of(const std::vector<EvaluationResult::LayerMemory>& layers);

/// The same for people, out of that JSON.
std::string table_of_memory(const nlohmann::ordered_json& json);

}  // namespace lapse
