// The feed-forward half of a layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/forgetting/method.h"
#include "lapse/model/config.h"

namespace lapse {

/// W_2 dropout(relu(W_1 x + b_1)) + b_2, or SwiGLU: W_2 dropout(silu(W_g x) * W_1 x) (docs/equations.md, "The base
/// model").
class FeedForward {
 public:
  FeedForward(const ModelConfig& config, Random& random);

  /// x: [..., width]. `dropout`: of the inner features, by `seed`.
  at::Tensor operator()(const at::Tensor& x, double dropout, uint64_t seed, bool bfloat16) const;
  /// The same of few_rows x [m][width], without dropout: y [m][width]. Takes from the thread's Scratch,
  /// where x and y may be too.
  void of_few(const float* x, int64_t m, float* y) const;
  void name(NamedTensors& parameters);
  /// The weights that inputs are multiplied by; undefined where there are none.
  std::vector<at::Tensor*> matrices() { return {&weight1_, &gate_, &weight2_}; }

 private:
  at::Tensor weight1_, bias1_, gate_, weight2_, bias2_;  // undefined where there are none
};

}  // namespace lapse
