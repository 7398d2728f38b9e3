// Normalisation of a hidden state's features, with a learned scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lapse/forgetting/method.h"

namespace lapse {

/// LayerNorm (kind "layer": mean 0, variance 1, scale and shift) or RMSNorm ("rms": mean square 1, scale) over the last
/// dimension; `epsilon` is added to the variance or mean square.
class Norm {
 public:
  Norm() = default;  ///< none: leaves what it is given
  Norm(int64_t features, const std::string& kind, double epsilon = 1e-5);

  at::Tensor operator()(const at::Tensor& x) const;
  bool defined() const { return weight_.defined(); }
  at::Tensor of_sum(const at::Tensor& x, const at::Tensor& more) const;  ///< of x + more
  /// Appends NAME.weight and NAME.bias, those that there are.
  void name(const std::string& name, NamedTensors& parameters);

 private:
  at::Tensor few(const at::Tensor& x, const at::Tensor& more) const;

  at::Tensor weight_, bias_;
  double epsilon_ = 0;
};

}  // namespace lapse
