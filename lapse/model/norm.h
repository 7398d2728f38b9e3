// Normalisation of a hidden state's features, with a learned scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lapse/forgetting/method.h"

namespace lapse {

/// LayerNorm (kind "layer": mean 0, variance 1, scale and shift) or RMSNorm ("rms": mean square 1, scale) over the last
/// dimension, eps 1e-5.
class Norm {
 public:
  Norm() = default;  ///< none: leaves what it is given
  Norm(int64_t features, const std::string& kind);

  at::Tensor operator()(const at::Tensor& x) const;
  /// Of x + more, [m][features] each, or of x if more is null; float32, not of a norm that is none.
  void of_few(const float* x, const float* more, int64_t m, float* y) const;
  /// Appends NAME.weight and NAME.bias, those that there are.
  void name(const std::string& name, NamedTensors& parameters);

 private:
  at::Tensor weight_, bias_;
};

}  // namespace lapse
