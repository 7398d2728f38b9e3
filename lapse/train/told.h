// What a method tells of its rows (LayerReport::told) as three numbers.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// [3] of float64, on the values' device: the sum of those that are not NaN, how many these are, and their maximum
/// (-infinity if there are none).
at::Tensor sum_count_max(const at::Tensor& values);

}  // namespace lapse
