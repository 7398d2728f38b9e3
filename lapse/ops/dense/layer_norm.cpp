#include "lapse/ops/dense/layer_norm.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/layer_passes.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/dense/row_pieces.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {
namespace {

using at::Tensor;

const float* from_row(const Tensor& x, int64_t row, int64_t n) {
  return x.defined() ? x.const_data_ptr<float>() + row * n : nullptr;
}

Tensor normalise(const Tensor& x, const Tensor& more, const Tensor& weight, const Tensor& bias, double epsilon) {
  const int64_t n = x.size(-1);
  Tensor y = at::empty(x.sizes(), x.options());
  const auto *w = weight.const_data_ptr<float>(), *b = bias.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  for_each_piece_of_rows(x.numel() / n, n, [&](int64_t, int64_t begin, int64_t rows) {
    layer_norm_rows(from_row(x, begin, n), from_row(more, begin, n), w, b, static_cast<float>(epsilon), rows, n,
                    to + begin * n);
  });
  return y;
}

/// parts [pieces][2][n], summed in their order to [n] each.
void sum_pieces(const std::vector<float>& parts, Tensor& dweight, Tensor& dbias) {
  const int64_t n = dweight.size(0);
  for (size_t at = 0; at < parts.size(); at += 2 * n) {
    add_to(dweight.mutable_data_ptr<float>(), parts.data() + at, n);
    add_to(dbias.mutable_data_ptr<float>(), parts.data() + at + n, n);
  }
}

/// Of x, of what is added to it, of the weight and of the bias.
std::vector<Tensor> gradients(const Tensor& dy, const Tensor& x, const Tensor& more, const Tensor& weight,
                              double epsilon) {
  const int64_t n = x.size(-1), all = x.numel() / n;
  Tensor dx = at::empty(x.sizes(), x.options());
  std::vector<float> parts(std::min(all, kRowPieces) * 2 * n, 0.f);
  for_each_piece_of_rows(all, n, [&](int64_t i, int64_t begin, int64_t rows) {
    layer_norm_rows_backward(from_row(dy, begin, n), from_row(x, begin, n), from_row(more, begin, n),
                             weight.const_data_ptr<float>(), static_cast<float>(epsilon), rows, n,
                             dx.mutable_data_ptr<float>() + begin * n, parts.data() + i * 2 * n,
                             parts.data() + i * 2 * n + n);
  });
  Tensor dweight = at::zeros({n}, x.options()), dbias = at::zeros({n}, x.options());
  sum_pieces(parts, dweight, dbias);
  return {dx, more.defined() ? dx : Tensor(), dweight, dbias};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& more, const Tensor& weight, const Tensor& bias, double epsilon) {
  const auto fits = [&](const Tensor& each) {
    return each.dim() == 1 && each.size(0) == x.size(-1) && each.scalar_type() == x.scalar_type() &&
           each.device() == x.device();
  };
  TORCH_CHECK(x.dim() >= 1 && fits(weight) && fits(bias), "layer_norm: weight and bias must be ", x.scalar_type(), " [",
              x.dim() == 0 ? 0 : x.size(-1), "], got ", weight.scalar_type(), " ", weight.sizes(), " and ",
              bias.scalar_type(), " ", bias.sizes());
  const bool sums = more.defined();
  TORCH_CHECK(
      !sums || (more.sizes() == x.sizes() && more.scalar_type() == x.scalar_type() && more.device() == x.device()),
      "layer_norm: what is added must be like x, ", x.scalar_type(), " ", x.sizes());
  if (x.scalar_type() != at::kFloat || !x.device().is_cpu() || x.numel() == 0)
    return at::layer_norm(sums ? x + more : x, weight.sizes(), weight, bias, epsilon);
  const Tensor from = x.contiguous(), added = sums ? more.contiguous() : more;
  const Tensor w = weight.contiguous(), b = bias.contiguous();
  const Tensor y = normalise(from, added, w, b, epsilon);
  if (!at::GradMode::is_enabled()) return y;
  return with_gradient({from, added, w, b}, y, {"layer_norm", {from, added, w}, [epsilon](const Received& r) {
                                                  return gradients(r.gradients[0].contiguous(), r.saved[0], r.saved[1],
                                                                   r.saved[2], epsilon);
                                                }});
}

}  // namespace lapse
