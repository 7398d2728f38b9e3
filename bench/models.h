// The models of the step benchmarks: their shapes, their FLOPs, and the library's transformer with frozen spans.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lapse/model/transformer.h"

namespace lapse::bench {

// Of every model here.
constexpr double kSpanLoss = 1e-6, kClip = 0.3, kRate = 7e-4;

struct StepShape {
  std::string name;
  int64_t layers, width, feed_forward, heads;
  int64_t block, batch, memory;  ///< K, B, M: rows that each layer keeps of each sample
  int64_t max_span, ramp;        ///< L, R
  int64_t vocabulary;
  double gflop = 0;  ///< that a whole training step must have; 0: not checked
  /// Adaptive ends, tied, with these cutoffs; none of them: a dense softmax, tied. Absent: the plain ends.
  std::optional<std::vector<int64_t>> cutoffs = {};

  int64_t tokens() const { return batch * block; }
};

/// Steps "1" to "5"; `quick`: small ones under the same names.
StepShape step_shape(const std::string& name, bool quick);

/// A small model to compare paths with each other, or to run for long.
StepShape tiny_shape();

/// FLOPs of a training step: 2 forward and 4 backward per use of a weight, but 2 backward for k and v of detached rows;
/// attention as Call::flops; tails of an adaptive softmax by the shares of their words in random_tokens. Error if they
/// differ from `gflop` by more than 1 %.
double step_flops(const StepShape& shape);
double output_flops(const StepShape& shape);  ///< those of the output alone

/// Fresh weights. Every span is that which keeps `shape.memory` rows: w = 0 and e = M + 1 - R.
Transformer make_model(const StepShape& shape);

/// Fresh weights with another method, by its settings; those left out have their defaults.
using Settings = std::map<std::string, std::string>;
Transformer make_model(const StepShape& shape, const std::string& method, const Settings& settings,
                       const Settings& evaluation = {});

/// Whether the parameter is one of the span predictor's.
bool of_spans(const std::string& parameter);

/// [B, length]: all tokens alike; with adaptive ends by Zipf's law, token r with a probability of about
/// 1 / ((r + 1) ln V).
at::Tensor random_tokens(const StepShape& shape, int64_t length);

/// Error unless each layer holds exactly `rows` rows of each sample that the next query can read.
void require_rows(const Transformer& model, const ModelMemory& memory, int64_t rows);

}  // namespace lapse::bench
