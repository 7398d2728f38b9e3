#include "lapse/train/metrics.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/ops/aten.h"
#include "lapse/train/run_folder.h"
#include "lapse/train/told.h"

namespace lapse {
namespace {

bool is_kept(const std::string& line, int64_t update, Repeated repeated) {
  Json values;
  try {
    values = parse_json(line, "a line");
  } catch (const Error&) {
    return false;
  }
  if (!values.is_object() || !values.contains("update") || !values["update"].is_number_integer()) return false;
  const int64_t n = values["update"];
  if (n != update) return n < update;
  const Json split = values.contains("split") ? values["split"] : Json();
  return !(repeated.training && split == "train") && !(repeated.validation && split == "valid");
}

/// The path of the lines, cut after `update`. A line that a killed process left half written is later than its
/// checkpoint.
fs::path cut(const fs::path& run, int64_t update, Repeated repeated) {
  make_folder(run);
  const fs::path path = metrics_path(run);
  std::string kept;
  if (is_there(path) && !is_file(path)) fail(path.string() + ": not a file; the metrics of the run are written there");
  if (update > 0 && is_there(path)) {
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);)
      if (is_kept(line, update, repeated)) kept += line + "\n";
  }
  write_file(path, kept);
  return path;
}

void add_scalars(TensorBoard& board, const std::string& tag, int64_t update, const Json& value) {
  if (value.is_number()) board.scalar(tag, update, value.get<double>());
  if (value.is_object())
    for (const auto& [name, inner] : value.items()) add_scalars(board, tag + "/" + name, update, inner);
  if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i) add_scalars(board, tag + "/" + std::to_string(i), update, value[i]);
}

}  // namespace

Metrics::Metrics(const fs::path& run, int64_t update, Repeated repeated)
    : path_(cut(run, update, repeated)), board_((make_folder(run / "tensorboard"), run / "tensorboard"), update + 1) {}

void Metrics::record(int64_t update, const std::string& split, const Json& values) {
  Json line = {{"update", update}, {"split", split}};
  line.update(values);
  append_to_file(path_, line.dump() + "\n");
  add_scalars(board_, split, update, values);
  board_.flush();
}

Json newest_of_training(const fs::path& run, int64_t update) {
  const fs::path path = metrics_path(run);
  Json newest;
  if (!is_file(path)) return newest;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);)
    if (is_kept(line, update, {}))
      if (Json values = parse_json(line, "a line"); values["split"] == "train") newest = std::move(values);
  return newest;
}

Json summaries(const std::vector<std::vector<LayerReport>>& parts) {
  std::vector<at::Tensor> summaries;
  for (const auto& part : parts)
    for (const auto& report : part)
      for (const auto& [name, values] : report.told) summaries.push_back(sum_count_max(values));
  // A GPU's are waited for once.
  const at::Tensor numbers = summaries.empty() ? at::Tensor() : at::stack(summaries).to(at::kCPU);
  const double* next = summaries.empty() ? nullptr : numbers.const_data_ptr<double>();
  Json all = Json::array();
  for (const auto& part : parts) {
    Json& layers = all.emplace_back(Json::array());
    for (const auto& report : part) {
      Json told = Json::object();
      for (const auto& [name, values] : report.told) told[name] = {next[0], next[1], next[2]}, next += 3;
      layers.push_back({{"memory_sum", report.memory_sum},
                        {"queries", report.queries},
                        {"memory_max", report.memory_max},
                        {"deleted", report.deleted},
                        {"readable", report.readable},
                        {"told", told}});
    }
  }
  return all;
}

Json summarise(const Json& parts) {
  Json layers = Json::array();
  for (size_t l = 0; !parts.empty() && l < parts[0].size(); ++l) {
    Json& layer = layers.emplace_back(Json::object());
    auto max = [&](const std::string& name, double value) { layer[name] = std::max(layer.value(name, value), value); };
    LayerReport sizes;
    for (const auto& part : parts)
      sizes.memory_sum += part[l]["memory_sum"].get<double>(), sizes.queries += part[l]["queries"].get<int64_t>();
    layer["memory_mean"] = sizes.memory_mean();
    double deleted = 0, readable = 0;
    std::map<std::string, std::pair<double, double>> told;  // sum, count
    for (const auto& part : parts) {
      max("memory_max", part[l]["memory_max"]);
      deleted += part[l]["deleted"].get<double>(), readable += part[l]["readable"].get<double>();
      for (const auto& [name, values] : part[l]["told"].items())
        told[name].first += values[0].get<double>(), told[name].second += values[1].get<double>();
    }
    layer["deleted"] = deleted / std::max(readable, 1.0);
    for (const auto& [name, sums] : told) {
      layer[name + "_mean"] = sums.first / sums.second;
      for (const auto& part : parts) max(name + "_max", part[l]["told"][name][2]);
    }
  }
  return layers;
}

}  // namespace lapse
