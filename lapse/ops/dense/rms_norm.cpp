#include "lapse/ops/dense/rms_norm.h"

#include <ATen/core/grad_mode.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/layer_passes.h"
#include "lapse/ops/dense/row_pieces.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {
namespace {

using at::Tensor;

Tensor normalise(const Tensor& x, const Tensor& weight, double epsilon) {
  const int64_t n = x.size(-1);
  Tensor y = at::empty(x.sizes(), x.options());
  const auto* from = x.const_data_ptr<float>();
  const auto* w = weight.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  for_each_piece_of_rows(x.numel() / n, n, [&](int64_t, int64_t begin, int64_t rows) {
    rms_norm_rows(from + begin * n, w, static_cast<float>(epsilon), rows, n, to + begin * n);
  });
  return y;
}

std::vector<Tensor> gradients(const Tensor& dy, const Tensor& x, const Tensor& weight, double epsilon) {
  const int64_t n = x.size(-1);
  Tensor dx = at::empty(x.sizes(), x.options()), dweight = at::zeros({kRowPieces, n}, x.options());
  for_each_piece_of_rows(x.numel() / n, n, [&](int64_t i, int64_t begin, int64_t rows) {
    rms_norm_rows_backward(dy.const_data_ptr<float>() + begin * n, x.const_data_ptr<float>() + begin * n,
                           weight.const_data_ptr<float>(), static_cast<float>(epsilon), rows, n,
                           dx.mutable_data_ptr<float>() + begin * n, dweight.mutable_data_ptr<float>() + i * n);
  });
  return {dx, dweight.sum(0)};
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  TORCH_CHECK(x.dim() >= 1 && weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                  weight.scalar_type() == x.scalar_type() && weight.device() == x.device(),
              "rms_norm: the weight must be ", x.scalar_type(), " [", x.dim() == 0 ? 0 : x.size(-1), "], got ",
              weight.scalar_type(), " ", weight.sizes());
  if (x.scalar_type() != at::kFloat || !x.device().is_cpu() || x.numel() == 0)
    return at::rms_norm(x, weight.sizes(), weight, epsilon);
  const Tensor from = x.contiguous(), w = weight.contiguous();
  const Tensor y = normalise(from, w, epsilon);
  if (!at::GradMode::is_enabled()) return y;
  return with_gradient({from, w}, y, {"rms_norm", {from, w}, [epsilon](const Received& r) {
                                        return gradients(r.gradients[0].contiguous(), r.saved[0], r.saved[1], epsilon);
                                      }});
}

}  // namespace lapse
