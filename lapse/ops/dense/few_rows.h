// Products of a few rows, as in generation, on plain memory: there libtorch's operators take longer than the products.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace lapse {

constexpr int64_t kFewRows = 16;     ///< up to which tiles of 64 rows would mostly multiply zeros
constexpr int64_t kSomeRows = 1024;  ///< up to which one pass over them takes no longer than to call threads

/// A weight [n, k], float32 or bfloat16, contiguous on the CPU, and where its product goes: y [m][n].
struct FewRowsProduct {
  const at::Tensor& weight;
  float* y;
  const float* bias = nullptr;  ///< [n], or null
};

/// x [m][k] times each weight transposed, plus its bias, then relu if asked for. Every weight is read once, mostly by
/// the core that read it for the token before. c10::Error for weights of another form.
void multiply_few_rows(const float* x, int64_t m, int64_t k, c10::ArrayRef<FewRowsProduct> products, bool relu = false);

/// A tensor on the CPU, not initialised, and x in another shape that its memory has already. Of a token's small steps
/// at::empty and view, on their way through libtorch's dispatcher, would take as long as the rest; where gradients are
/// asked for, and for other tensors, `reshaped` is at::reshape.
at::Tensor empty_rows(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);
at::Tensor reshaped(const at::Tensor& x, at::IntArrayRef sizes);
/// x in another type: x itself where it has that type, and of a few numbers in float32 or bfloat16 without libtorch's
/// dispatcher, which takes longer than the rounding.
at::Tensor as(const at::Tensor& x, at::ScalarType type);
/// Whole numbers x + by.
at::Tensor shifted(const at::Tensor& x, int64_t by);

/// Whether rows x [..., k] can be read as such: no more than `most`, float32, contiguous, on the CPU, and no gradient
/// is asked for.
bool few_rows(const at::Tensor& x, int64_t most = kFewRows);

}  // namespace lapse
