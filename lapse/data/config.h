// What to read and how to cut it.
#pragma once

#include "lapse/core/config.h"

namespace lapse {

struct DataConfig {
  std::string path;                               // one file, cut by `split` ...
  std::string train_path, valid_path, test_path;  // ... or three files
  std::string unit = "byte";
  std::string tokenizer;
  std::vector<double> split = {0.9, 0.05, 0.05};
  int64_t min_count = 1;
  int64_t max_vocabulary = 0;
  bool windows = false;
  std::string documents = "none";
  std::string objective = "next_token";
  double noise_density = 0.15, noise_span = 3;
  int64_t sentinels = 100, padded_vocabulary = 0;

  /// Whether the text is read in windows, which begin with BOS. Spans are cut out of stretches across documents.
  bool in_windows() const { return windows || (documents != "none" && !corrupts_spans()); }

  bool corrupts_spans() const { return objective == "span_corruption"; }
  /// `makes_vocabulary`: whether the run's vocabulary is made of its text, not taken from another run; null: yes.
  Fields fields(const std::function<bool()>& makes_vocabulary = nullptr);
};

}  // namespace lapse
