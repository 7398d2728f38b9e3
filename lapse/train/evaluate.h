// Reading a text with fixed weights: keys, values and spans are computed once per row and kept.
#pragma once

#include <functional>
#include <vector>

#include "lapse/data/stream.h"
#include "lapse/model/transformer.h"

namespace lapse {

struct EvaluationOptions {
  int64_t max_blocks = 0;                                                  ///< 0: all
  std::function<void(int64_t done, int64_t total, double nats)> progress;  ///< after each block; may be empty
};

struct EvaluationResult {
  double nats = 0;     ///< mean negative log-likelihood per token
  int64_t tokens = 0;  ///< tokens predicted
  double seconds = 0;
  struct LayerMemory {
    double mean = 0, max = 0;  ///< |C_t| over queries and streams
  };
  std::vector<LayerMemory> layers;
  bool stopped = false;  ///< by Ctrl-C, before the end
};

/// Memory starts anew where the blocks say so.
EvaluationResult evaluate(Transformer& model, EvaluationBlocks& blocks, const EvaluationOptions& options = {});

/// A block's tokens as [B, K] int64.
at::Tensor block_tensor(const TokenBlock& block, const std::vector<int64_t>& tokens);

}  // namespace lapse
