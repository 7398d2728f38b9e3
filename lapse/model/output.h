// The end of a model: what the last layer's h predicts, and what that costs.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lapse/model/config.h"
#include "lapse/model/input.h"
#include "lapse/model/likelihood.h"

namespace lapse {

class Output {
 public:
  virtual ~Output() = default;
  /// Of h [..., width]: [..., outputs], which nothing else keeps: the loss writes their gradient over them. `bfloat16`:
  /// BlockOptions::bfloat16.
  virtual at::Tensor logits(const at::Tensor& h, bool bfloat16) const = 0;
  /// Of h [P, width], or [B, K, width], against as many targets [P], as lapse::likelihood has it: an output that need
  /// not compute the logits of everything for that does not.
  virtual Likelihood likelihood(const at::Tensor& h, const at::Tensor& target, const LikelihoodOptions& options) const {
    return lapse::likelihood(logits(h, options.bfloat16), target, options);
  }
  /// How many numbers that takes for each target, on average: an estimate.
  virtual double computed() const = 0;
  virtual NamedTensors parameters() = 0;
  virtual void to_bfloat16() = 0;  ///< Transformer::to_bfloat16
};

/// log_softmax(W h + b) over `outputs` kinds; b only with model.biases.
std::unique_ptr<Output> softmax_output(const ModelConfig& config, int64_t outputs, Random& random);

/// log_softmax(E h / sqrt(width)), E the input's embedding. Error if that has none, or not of `outputs` kinds.
std::unique_ptr<Output> tied_output(const ModelConfig& config, int64_t outputs, const Input& input, Random& random);

}  // namespace lapse
