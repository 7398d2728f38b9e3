// Sums of a matrix's lines, chosen by bags of numbers: a linear layer of many bits, few of which are set.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// y [..., width]: the sum of the lines of weight [lines, width] that each bag of bags [..., most] names, int64, each
/// number once; negative numbers name none. Differentiable in weight, once. float32 on the CPU by passes over rows, all
/// else by at::embedding. c10::Error for shapes and types that do not fit, and on the CPU for a number that is too
/// large.
at::Tensor bag_sums(const at::Tensor& weight, const at::Tensor& bags);

}  // namespace lapse
