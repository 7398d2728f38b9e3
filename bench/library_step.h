// A whole training step of the library, as its trainer does it (Run::step), on tokens that the caller brings.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bench/models.h"
#include "lapse/train/optimiser.h"

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

  Transformer& model() { return model_; }
  const ModelMemory& memory() const { return memory_; }

 private:
  StepShape shape_;
  Transformer model_;
  Optimiser optimiser_;
  ModelMemory memory_;
  Random draws_;
  BlockOptions options_;
};

/// Error if this step and the eager one give different losses over a few updates of a small model.
void check_step();

}  // namespace lapse::bench
