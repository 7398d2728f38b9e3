// mix64 of core/random.h for tensors, on any device.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// Of each element, int64.
at::Tensor mix64(at::Tensor x);

}  // namespace lapse
