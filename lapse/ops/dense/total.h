// The sum of all elements, with the same bits for any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// The sum of x's elements, a scalar of its dtype. libtorch divides one long sum among its threads; this one is a sum
/// of lines of fixed length, which it divides only between lines. Differentiable.
at::Tensor total(const at::Tensor& x);

}  // namespace lapse
