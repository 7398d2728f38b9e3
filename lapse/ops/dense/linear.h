// Linear layers of tall inputs: y = x w^T + b, with what surrounds them in a transformer fused in.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "lapse/ops/dense/dropout.h"

namespace lapse {

struct LinearOptions {
  at::Tensor bias;                      ///< [out], or undefined; with one weight only
  bool relu = false;                    ///< y = max(0, x w^T + b); with one weight only
  std::optional<Dropout> dropout = {};  ///< after relu; only with it
  bool bfloat16 =
      false;  ///< multiply in bfloat16, sum in float32; inputs and outputs stay float32. A few rows on the CPU: float32
  /// The rows of x, flattened to two dimensions, that came with a gradient: pairs (begin, end), ascending, disjoint.
  /// Others, such as remembered rows that were detached, need none; what they get is unspecified (0, or the true one).
  /// Empty: all rows.
  std::vector<std::pair<int64_t, int64_t>> gradient_rows;
};

/// x [..., in] times each of the weights [out, in]: [..., out] each. Differentiable in x, the weights and the bias. On
/// the CPU in float32 by matmul.h, a few rows without gradients by few_rows.h; other dtypes and devices by at::linear,
/// in bfloat16 by rounded_linear.h. Without gradients the weights of a float32 x may be bfloat16: on the CPU a few rows
/// are then multiplied in float32, or, where the processor multiplies pairs of bfloat16 (few_rows.h, reads_narrow), x
/// is rounded too; many as with `bfloat16` where the processor can; elsewhere few and many alike. c10::Error for shapes
/// and types that do not fit. No second derivatives.
std::vector<at::Tensor> linear(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                               const LinearOptions& options = {});
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const LinearOptions& options = {});

/// Whether this device multiplies bfloat16 itself, which LinearOptions::bfloat16 needs: not every processor does.
bool has_bfloat16_products(at::Device device = at::kCPU);

}  // namespace lapse
