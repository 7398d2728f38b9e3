// What a run records: DIR/metrics.jsonl, one JSON object a line, and the same numbers as TensorBoard events in
// DIR/tensorboard.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lapse/core/file.h"
#include "lapse/model/layer.h"
#include "lapse/train/tensorboard.h"

namespace lapse {

/// Lines of the checkpoint's own update that a resumed run writes again.
struct Repeated {
  bool training = false, validation = false;
};

class Metrics {
 public:
  /// `update`: what is recorded of later updates is cut away first, so that a resumed run repeats it (0: everything),
  /// and of that update what is `repeated`.
  Metrics(const fs::path& run, int64_t update, Repeated repeated = {});

  /// A line of one update and split ("train", "valid"). Numbers nested as {"layers": [{"span_mean": ..}]} become
  /// TensorBoard tags "train/layers/0/span_mean".
  void record(int64_t update, const std::string& split, const nlohmann::ordered_json& values);

 private:
  fs::path path_;
  TensorBoard board_;
};

/// The run's newest line of training up to this update; null: there is none.
nlohmann::ordered_json newest_of_training(const fs::path& run, int64_t update);

/// Of one block, the last before the line (losses are means over all updates since the line before): for each part of
/// the batch, for each layer, sums, means and largest numbers of the memory and of what the method tells.
nlohmann::ordered_json summaries(const std::vector<std::vector<LayerReport>>& parts);

/// Mean and maximum over these summaries of all parts, per layer, as the JSON array "layers" of a metrics line:
/// memory_mean, memory_max, deleted, and NAME_mean, NAME_max of what the method tells.
nlohmann::ordered_json summarise(const nlohmann::ordered_json& parts);

}  // namespace lapse
