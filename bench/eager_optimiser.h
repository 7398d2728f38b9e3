// The eager reference's optimiser: libtorch's own operators over all parameters at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lapse/train/config.h"

namespace lapse::bench {

/// Adam or RMSProp at a constant rate.
class EagerOptimiser {
 public:
  EagerOptimiser(const OptimiserConfig& config, std::vector<at::Tensor> parameters);

  void zero_gradients();
  /// Clips the gradients' global norm (config.clip > 0) and takes a step.
  void clip_and_step();

  std::vector<at::Tensor> first, second;  ///< moments of the gradient, of each parameter; RMSProp has no first ones
  int64_t steps = 0;

 private:
  OptimiserConfig config_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace lapse::bench
