// Reading a text with fixed weights: keys, values and spans are computed once per row and kept.
#pragma once

#include <functional>
#include <vector>

#include "lapse/data/source.h"
#include "lapse/model/transformer.h"

namespace lapse {

struct EvaluationOptions {
  int64_t max_blocks = 0;       ///< 0: all
  bool counts_answers = false;  ///< Source::counts_answers
  bool any_loss = false;        ///< give back also a loss that is not finite; else it is an Error
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

/// Error if a loss in nats is not a finite number: weights that are too large for float32 give such losses.
void require_finite(double nats);

/// Whether any position of the first `max_blocks` blocks (0: of all) is scored.
bool any_scored(EvaluationBlocks& blocks, int64_t max_blocks);

/// A block's tokens as [B, K] int64.
at::Tensor block_tensor(const TokenBlock& block, const std::vector<int64_t>& tokens);

/// The scored positions of targets [B, K], as BlockOptions::places has them.
at::Tensor scored_places(const at::Tensor& target);

/// How logits [P, V] of these places did against targets [B, K].
struct ScoredPositions {
  at::Tensor loss;   ///< negative log-likelihoods, summed: a scalar
  at::Tensor right;  ///< [scored positions] bool: the likeliest is the right one
};
ScoredPositions score_positions(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& places);

}  // namespace lapse
