// Products of many small matrices, whose sums do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// a [..., m, k] times b [..., k, n], the leading dimensions the same: [..., m, n]. Differentiable, once. On the CPU
/// one thread makes each matrix: libtorch's own product gives others to several threads, and then rounds otherwise. On
/// other devices at::matmul.
at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace lapse
