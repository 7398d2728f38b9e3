// Dropout of the seed alone: the same numbers on every device, whatever has been drawn before.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// Zeroes each element with probability p and scales the others by 1 / (1 - p). Differentiable; in float32 on the CPU
/// once, for there nothing is kept: the backward pass draws anew.
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed);

}  // namespace lapse
