// Fresh weights (docs/equations.md, "Initialisation"), the same for a seed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lapse/core/random.h"

namespace lapse {

/// While one of these lives, parameters made by this thread have shapes and no values (libtorch's meta device): a model
/// of any size can be built to count them.
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
};

/// Leaves that require gradients, float32.
at::Tensor normal_parameter(at::IntArrayRef shape, Random& random, double deviation = 1);  ///< N(0, deviation)
at::Tensor uniform_parameter(at::IntArrayRef shape, double bound, Random& random);         ///< U(-bound, bound)
at::Tensor constant_parameter(at::IntArrayRef shape, double value);

/// A linear map's weight [out, in] (linear_weights).
at::Tensor linear_weight(int64_t out, int64_t in, const std::string& initialisation, Random& random);

}  // namespace lapse
