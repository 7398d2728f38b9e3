// A model that learns: its weights, the memory of its samples, the optimiser and its schedule.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lapse/core/group.h"
#include "lapse/train/objective.h"
#include "lapse/train/optimiser.h"

namespace lapse {

struct LearnerOptions {
  int64_t batch = 1;      ///< samples of a batch, of all ranks together
  int64_t parts = 1;      ///< of the whole batch, which they must divide evenly: read one after the other, gradients
                          ///< accumulated (less memory, the same update), or divided evenly among the ranks
  int64_t updates = 1;    ///< length of the whole run, which the schedule ends with
  uint64_t seed = 1;      ///< of the draws: dropout, layer drop, random spans
  bool bfloat16 = false;  ///< BlockOptions::bfloat16
  OptimiserConfig optimiser = {};
  std::function<bool(const std::string& parameter)> trains = {};  ///< empty: all parameters are trained
  Group& group = solo();  ///< who learns together: each rank reads its own parts, and all make the same step
};

/// What one update did, on all ranks together.
struct Update {
  Score score;  ///< of the batch; no answers
  double loss = 0, cost = 0, gradient_norm = 0, rate = 0;
  double exchange_seconds = 0;                    ///< of several ranks: adding up gradients, and waiting for each other
  int64_t steps = 0;                              ///< tokens or other timesteps that were read, without padding
  std::vector<std::vector<LayerReport>> reports;  ///< of each of this rank's parts, if they were asked for
};

class Learner {
 public:
  /// Error if parts do not divide the batch, or ranks the parts.
  Learner(Transformer model, std::unique_ptr<Objective> objective, const LearnerOptions& options);
  Learner(const Learner&) = delete;  // the optimiser points to the model's parameters

  /// The whole update: every part of the batch forward and backward, clip, step. Memory starts anew if the block says
  /// so. A loss or gradient norm that is not finite is returned, and the step is not taken. The block is the whole
  /// batch, of which this rank reads its share; Error if it has not as many samples. After another error parts may have
  /// read what others have not: no more is read until `restart`.
  Update update(const TokenBlock& block, bool observe = false);
  /// The same of this rank's share of a batch.
  Update update(const Batch& share, bool observe = false);
  /// Which samples of the batch are this rank's.
  Share share() const { return share_of(options_.batch, options_.group.rank(), options_.group.size()); }

  /// Empties the memory.
  void restart();

  Transformer& model() { return model_; }
  Optimiser& optimiser() { return optimiser_; }
  const Optimiser& optimiser() const { return optimiser_; }
  /// One for each of this rank's parts.
  std::vector<ModelMemory>& memory() { return memory_; }
  const std::vector<ModelMemory>& memory() const { return memory_; }
  Random& draws() { return draws_; }
  const OptimiserConfig& rates() const { return options_.optimiser; }
  /// Finished updates, which decide the rate.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  Transformer model_;
  std::unique_ptr<Objective> objective_;
  LearnerOptions options_;
  Optimiser optimiser_;
  Random draws_;
  std::vector<ModelMemory> memory_;
  int64_t updates_ = 0;
};

}  // namespace lapse
