// Reading a text with fixed weights: keys, values and spans are computed once per row and kept.
#pragma once

#include <functional>
#include <vector>

#include "lapse/data/source.h"
#include "lapse/model/transformer.h"

namespace lapse {

struct EvaluationOptions {
  int64_t max_blocks = 0;  ///< 0: all
  bool any_loss = false;   ///< give back also a loss that is not finite; else it is an Error
  std::function<void(int64_t done, int64_t total, const Score& score)> progress;  ///< after each block; may be empty
};

struct EvaluationResult {
  double nats = 0;     ///< mean negative log-likelihood per scored position: of a text, per token
  int64_t tokens = 0;  ///< tokens read, padding included: of a text, as many as are predicted
  Score score;
  double seconds = 0;
  struct LayerMemory {
    double mean = 0, max = 0;  ///< |C_t| over queries that are no padding
  };
  std::vector<LayerMemory> layers;
  bool stopped = false;  ///< by Ctrl-C, before the end
};

/// Memory starts anew where the blocks say so. Error if nothing was scored, or the loss is not finite.
EvaluationResult evaluate(Transformer& model, EvaluationBlocks& blocks, const EvaluationOptions& options = {});

/// Whether any position of the first `max_blocks` blocks (0: of all) is scored.
bool any_scored(EvaluationBlocks& blocks, int64_t max_blocks);

}  // namespace lapse
