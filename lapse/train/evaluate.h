// Reading a text with fixed weights: keys, values and spans are computed once per row and kept.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lapse/core/group.h"
#include "lapse/data/source.h"
#include "lapse/model/transformer.h"

namespace lapse {

/// What the targets of one block cost, and how large the memory was that predicted them: [batch * length].
struct TokenLosses {
  std::vector<double> nats;                 ///< NaN where nothing is scored
  std::vector<std::vector<int64_t>> sizes;  ///< of each layer, |C_t| of the query
};

struct EvaluationOptions {
  int64_t max_blocks = 0;  ///< 0: all
  bool any_loss = false;   ///< give back also a loss that is not finite; else it is an Error
  std::function<void(int64_t done, int64_t total, const Score& score)>
      progress;  ///< after each block, of the first part; may be empty
  std::function<void(const TokenBlock& block, const TokenLosses& losses)> each = {};  ///< likewise; of one part only
  int64_t parts = 1;      ///< of each block's samples, a multiple of the group's size; read one after the other
  Group& group = solo();  ///< whose ranks share them
};

struct EvaluationResult {
  double nats = 0;     ///< mean negative log-likelihood per scored position: of a text, per token
  int64_t tokens = 0;  ///< tokens read, without padding: of a text, as many as are predicted
  Score score;
  double seconds = 0;  ///< that the model took
  struct LayerMemory {
    double mean = 0, max = 0;     ///< |C_t| over queries that are no padding
    double sum = 0, queries = 0;  ///< of which the mean is made
    struct Told {
      double mean = 0, max = 0;
      double sum = 0, count = 0;  ///< of which the mean is made
    };
    std::map<std::string, Told> told;  ///< by the method, of the rows, such as their spans; the first rank alone has it
  };
  std::vector<LayerMemory> layers;
  bool stopped = false;  ///< by Ctrl-C, before the end
  bool whole = true;     ///< EvaluationOptions::max_blocks left nothing out
};

/// As in the lines of metrics.jsonl: memory_mean, memory_max, and NAME_mean, NAME_max of what the method tells.
nlohmann::ordered_json to_json(const EvaluationResult::LayerMemory& layer);

/// Reads blocks, one after the other, and sums up.
class Evaluator {
 public:
  /// `any_loss`: EvaluationOptions::any_loss.
  explicit Evaluator(Transformer& model, bool any_loss = false);
  ~Evaluator();

  /// Memory starts anew where the block says so. Error if the loss is not finite. `each`: filled; may be null.
  void read(const TokenBlock& block, TokenLosses* each = nullptr);
  const Score& score() const { return result_.score; }
  /// Of all blocks so far; nothing may be read after it.
  EvaluationResult finish();

 private:
  class Answers;

  Transformer& model_;
  bool any_loss_;
  ModelMemory memory_;
  std::vector<LayerReport> sizes_;  // of all blocks
  std::vector<Columns> told_;       // of each layer, on its device: sum, count and maximum of what the method tells
  std::unique_ptr<Answers> answers_;
  EvaluationResult result_;
};

/// Memory starts anew where the blocks say so. Every rank has the result of all: sums in the order of the parts, so
/// that it does not depend on who read them. Error if nothing was scored, or the loss is not finite.
EvaluationResult evaluate(Transformer& model, EvaluationBlocks& blocks, const EvaluationOptions& options = {});

/// Whether any position of the first `max_blocks` blocks (0: of all) is scored.
bool any_scored(EvaluationBlocks& blocks, int64_t max_blocks);

}  // namespace lapse
