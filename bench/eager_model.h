// The eager reference of a whole training step: the base model with Expire-Span as a PyTorch user writes it. Memory is
// a dense tensor, the newest M rows of every sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bench/eager_optimiser.h"
#include "bench/models.h"

namespace lapse::bench {

struct EagerLayer {
  at::Tensor query, key, value, out, norm1_weight, norm1_bias, norm2_weight, norm2_bias;
  at::Tensor ff1_weight, ff1_bias, ff2_weight, ff2_bias, span_weight, span_bias;

  at::Tensor spans(const at::Tensor& x, double max_span) const;  ///< e of rows x [..., d]: [...]
  /// The layer's output, given its input and what attention read, [..., d] both.
  at::Tensor finish(const at::Tensor& h, const at::Tensor& read) const;
};

/// Copies of the library's weights (Transformer::parameters), by its names.
struct EagerWeights {
  EagerWeights(const NamedTensors& parameters, int64_t layers);

  /// A parameter, its gradient or a moment as the eager model has it: an agent's "input.weight" [bits, width] with
  /// one more row, which stands for no bit.
  static at::Tensor converted(const std::string& name, const at::Tensor& values);

  at::Tensor embedding, position, output_weight, output_bias;
  std::vector<EagerLayer> layers;
  std::vector<std::pair<std::string, at::Tensor>> all;
};

class EagerModel {
 public:
  EagerModel(const StepShape& shape, const NamedTensors& parameters);

  /// One training step on tokens [B, K]; returns the loss. As Run::step of the trainer: cross entropy and the cost of
  /// spans, backward, the gradients' global norm clipped, Adam. The span predictors stay as they are.
  double update(const at::Tensor& input, const at::Tensor& target);

  /// Fills the memory with random rows, so that timing can begin.
  void fill();

 private:
  at::Tensor forward(size_t l, const at::Tensor& h, at::Tensor& cost);

  StepShape shape_;
  EagerWeights weights_;
  EagerOptimiser optimiser_;
  std::vector<at::Tensor> memory_;  // per layer: [B, 0 ... M, d], detached
};

}  // namespace lapse::bench
