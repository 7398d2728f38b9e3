// How a model's two ends are made: by what it reads, and what is asked of it.
#pragma once

#include <functional>
#include <memory>

#include "lapse/model/input.h"
#include "lapse/model/output.h"

namespace lapse {

struct ModelEnds {
  /// `block`: K of training.
  std::function<std::unique_ptr<Input>(const ModelConfig& config, int64_t block, Random& random)> input;
  std::function<std::unique_ptr<Output>(const ModelConfig& config, Random& random)> output;
  int64_t outputs;  ///< numbers that the output has for each position
};

/// Tokens of `vocabulary` kinds are read, and one of `outputs` kinds is predicted; 0: the vocabulary.
ModelEnds token_ends(int64_t vocabulary, int64_t outputs = 0);

/// Observations of `bits` bits are read, and one of `actions` is chosen (model/policy.h).
ModelEnds agent_ends(int64_t bits, int64_t actions);

}  // namespace lapse
