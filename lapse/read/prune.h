// Context pruning: which budget each layer needs (docs/equations.md, "Selective attention"; the paper's section 4).
#pragma once

#include <functional>
#include <vector>

#include "lapse/data/stream.h"
#include "lapse/model/transformer.h"
#include "lapse/train/batch.h"

namespace lapse {

/// Budgets of all layers, and the loss with them.
struct PruneRound {
  std::vector<int64_t> budgets;
  double nats = 0;
  int64_t total() const;
};

/// Budgets of layer 0, 1, ... from now on; empty: none. Error if the model's method has none.
void set_budgets(Transformer& model, const std::vector<int64_t>& budgets);

/// Error for a model in which none can be found: one with an encoder.
void require_budgets(const Transformer& model);

/// A text that is read layer by layer. Of each layer its inputs are kept, under the budgets so far and under those of
/// the best try, so that another budget of layer l costs only the layers from l on, and only in documents, windows or
/// streams with more rows than that budget.
class LayerwiseText {
 public:
  /// Reads at most max_blocks blocks (0: all). The model must outlive this, and its method have budgets. Error if there
  /// is no block.
  LayerwiseText(Transformer& model, EvaluationBlocks& blocks, int64_t max_blocks);

  /// The mean negative log-likelihood per token with these budgets, which the model then has. At once if they are those
  /// of the best try.
  double loss(const std::vector<int64_t>& budgets);
  /// A try: another budget for one layer; the others have those of the last call of `loss`.
  double loss_with(int64_t layer, int64_t budget);

 private:
  struct Block {
    Batch batch;
    Padding padding;
  };
  /// What is read from empty memory: blocks first ... end - 1.
  struct Pass {
    size_t first, end;
    int64_t rows;    ///< that a layer without budget holds of its longest sample, or more
    int64_t scored;  ///< tokens
  };
  struct Reading {
    std::vector<int64_t> budgets;                 ///< empty: not read yet
    std::vector<std::vector<at::Tensor>> inputs;  ///< [layer][block], without padding
    std::vector<double> nats;                     ///< of each pass

    double loss(const std::vector<Pass>& passes) const;
  };

  /// `reading` with other budgets.
  Reading changed(Reading reading, const std::vector<int64_t>& budgets);
  void embed(const Pass& pass, std::vector<at::Tensor>& inputs);
  double read(const Pass& pass, size_t first_layer, std::vector<std::vector<at::Tensor>>& inputs);
  std::vector<at::Tensor> run_layer(size_t layer, const Pass& pass, const std::vector<at::Tensor>& inputs);

  Transformer& model_;
  std::vector<Block> blocks_;
  std::vector<Pass> passes_;
  Reading now_, best_;
};

struct PruneOptions {
  int64_t context = 0;   ///< N: what every layer holds at first
  int64_t step = 8;      ///< a round lowers one layer by so much; none goes below it
  double threshold = 0;  ///< the last allocation with a loss of at most so many nats is chosen
  double margin = 0.02;  ///< the search ends when the loss is so much above the threshold
  std::function<void(const std::vector<PruneRound>&)> after_round;  ///< may throw to leave; may be empty
};

/// The greedy search: each round evaluates every layer lowered by `step` and keeps the best. `curve`: the rounds so
/// far, empty or of an earlier call that was interrupted; the first is that of full budgets. Returns the whole curve.
std::vector<PruneRound> search_budgets(LayerwiseText& text, int64_t layers, const PruneOptions& options,
                                       std::vector<PruneRound> curve);

/// The last round whose loss is at most the threshold; the first if there is none.
const PruneRound& chosen_round(const std::vector<PruneRound>& curve, double threshold);

}  // namespace lapse
