// New rows behind each sample's own, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lapse {

/// old [offsets[B], ...], packed, and block [B, K, ...] of the same dtype: of each sample the old rows, then its K new
/// ones. Differentiable in both, once.
at::Tensor appended(const at::Tensor& old, const std::vector<int64_t>& offsets, const at::Tensor& block);

}  // namespace lapse
