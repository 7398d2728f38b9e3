// Dropout of the seed alone: the same numbers on every device, whatever has been drawn before.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/ops/dense/layer_passes.h"

namespace lapse {

struct Dropout {
  double p;
  uint64_t seed;
  float scale() const { return static_cast<float>(1 / (1 - p)); }
  DropoutDraw draw() const;  ///< as ops/dense/layer_passes.h has it
};

/// Zeroes each element with probability p and scales the others by 1 / (1 - p). Differentiable; in float32 on the CPU
/// once, for there nothing is kept: the backward pass draws anew.
at::Tensor dropped(const at::Tensor& x, const Dropout& how);

}  // namespace lapse
