// Dropout of the seed alone: the same numbers on every device, whatever has been drawn before.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// Zeroes each element with probability p and scales the others by 1 / (1 - p).
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed);

/// mix64 of core/random.h on int64 tensors.
at::Tensor mix64(at::Tensor x);

}  // namespace lapse
