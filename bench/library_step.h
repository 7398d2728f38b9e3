// A whole training step of the library on tokens that the caller brings.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bench/models.h"
#include "lapse/train/learner.h"

namespace lapse::bench {

class LibraryStep {
 public:
  LibraryStep(const StepShape& shape, const std::string& precision);
  LibraryStep(const StepShape& shape, const std::string& precision, Transformer model);

  double update(const at::Tensor& input, const at::Tensor& target);  ///< tokens [B, K]; the loss

  void read();  ///< one random block, without gradients
  /// Reads random blocks, without gradients, until every layer remembers M rows of each sample; Error if it does not.
  void fill();
  void require_full() const;  ///< Error unless every layer remembers exactly M rows of each sample

  Transformer& model() { return learner_.model(); }
  const ModelMemory& memory() const { return learner_.memory()[0]; }

 private:
  StepShape shape_;
  Learner learner_;
  BlockOptions options_;  // of reading
};

/// Error if this step and the eager one give different losses over a few updates of a small model.
void check_step();

}  // namespace lapse::bench
