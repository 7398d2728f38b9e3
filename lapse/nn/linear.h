// A linear map with its weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lapse/core/random.h"
#include "lapse/forgetting/method.h"

namespace lapse {

/// y = W x + b; b only if asked for.
class Linear {
 public:
  Linear() = default;  ///< none
  /// `initialisation` as in linear_weight; b is U(+-1/sqrt(in)). Both are then divided by `divisor`.
  Linear(int64_t out, int64_t in, bool bias, const std::string& initialisation, Random& random, double divisor = 1);

  /// x: [..., in]. `bfloat16`: multiply in bfloat16, sum in float32.
  at::Tensor operator()(const at::Tensor& x, bool bfloat16 = false) const;
  bool defined() const { return weight.defined(); }
  /// Appends NAME.weight and NAME.bias, those that there are; with `bare` the weight's name is NAME.
  void name(const std::string& name, NamedTensors& parameters, bool bare = false);

  at::Tensor weight, bias;  // [out, in], [out]
};

}  // namespace lapse
