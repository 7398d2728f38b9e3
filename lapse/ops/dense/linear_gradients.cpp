#include "lapse/ops/dense/linear_gradients.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/dense/narrow.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

template <class T>
Tensor gradient_of_x(const Tensors& dy, const Tensors& weights, int64_t k, const std::vector<RowRange>& rows) {
  const int64_t m = dy[0].size(0);
  Tensor dx = at::empty({m, k}, dy[0].options());
  int64_t next = 0;
  auto clear = [&](int64_t end) {
    if (next < end) std::memset(dx.mutable_data_ptr<float>() + next * k, 0, (end - next) * k * sizeof(float));
  };
  for (const auto& range : rows) clear(range.begin), next = range.end;
  clear(m);
  for (size_t i = 0; i < dy.size(); ++i) {
    const int64_t n = weights[i].size(0);
    const Panels<T> panels(weights[i].const_data_ptr<float>(), n, k, false);
    multiply(Left<T>::plain(dy[i].const_data_ptr<float>(), m, n), rows, panels, dx.mutable_data_ptr<float>(), i > 0);
  }
  return dx;
}

/// dy^T x for each dy that is needed. One of the operands must be turned: x once for all, or each dy, whichever has
/// fewer columns (needed or not, so that the sums do not depend on it).
template <class T>
Tensors gradients_of_weights(const Tensors& dy, const std::vector<bool>& needed, const Tensor& x) {
  Tensors dw(dy.size());
  if (std::none_of(needed.begin(), needed.end(), [](bool one) { return one; })) return dw;
  const int64_t m = x.size(0), k = x.size(1);
  int64_t columns = 0;
  for (const auto& each : dy) columns += each.size(1);
  const auto* from = x.const_data_ptr<float>();
  std::optional<Left<T>> turned;
  if (k < columns) turned.emplace(Left<T>::transposed(from, m, k));
  auto product = [&](const Left<T>& left, int64_t rows, const float* right, int64_t n) {
    Tensor y = at::empty({rows, n}, x.options());
    multiply_long(left, rows, right, m, n, y.mutable_data_ptr<float>());
    return y;
  };
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!needed[i]) continue;
    const auto* grad = dy[i].const_data_ptr<float>();
    const int64_t n = dy[i].size(1);
    dw[i] =
        turned ? product(*turned, k, grad, n).t().contiguous() : product(Left<T>::transposed(grad, m, n), n, from, k);
  }
  return dw;
}

/// scale dy where y > 0, else 0: the gradient of relu and dropout, made once for all that follows from it.
Tensor through_relu(const Tensor& dy, const Tensor& y, float scale) {
  Tensor result = at::empty_like(dy);
  constexpr int64_t kPiece = 1 << 14;
  const int64_t n = dy.numel();
  for_each_task((n + kPiece - 1) / kPiece, [&](int64_t i) {
    const int64_t at = i * kPiece;
    where_positive(dy.const_data_ptr<float>() + at, y.const_data_ptr<float>() + at, scale,
                   result.mutable_data_ptr<float>() + at, std::min(kPiece, n - at));
  });
  return result;
}

std::vector<int64_t> columns_of(const Tensors& weights) {
  std::vector<int64_t> n;
  for (const auto& weight : weights) n.push_back(weight.size(0));
  return n;
}

/// By narrow_gradients, those that are needed: of x to result[0], of the bias to result[1], then of the weights.
void narrow_backward(const Tensor& x, const Tensor& bias, const Tensor& y, const Tensors& weights, const Tensors& dy,
                     const std::vector<bool>& needed, bool of_x, bool of_bias, std::vector<RowRange> rows, float scale,
                     Tensors& result) {
  NarrowLayer layer{.x = x.const_data_ptr<float>(), .m = x.size(0), .k = x.size(1), .rows = std::move(rows)};
  for (size_t i = 0; i < weights.size(); ++i) {
    if (needed[i]) result[2 + i] = at::empty_like(weights[i]);
    layer.products.push_back({dy[i].const_data_ptr<float>(), weights[i].const_data_ptr<float>(), weights[i].size(0),
                              needed[i] ? result[2 + i].mutable_data_ptr<float>() : nullptr});
  }
  if (y.defined()) layer.relu = y.const_data_ptr<float>(), layer.scale = scale;
  if (of_x) layer.dx = (result[0] = at::empty_like(x)).mutable_data_ptr<float>();
  if (of_bias) layer.dbias = (result[1] = at::empty_like(bias)).mutable_data_ptr<float>();
  narrow_gradients(layer);
}

}  // namespace

template <class T>
Tensors linear_gradients(const Received& r, std::vector<RowRange> rows, float scale) {
  const Tensor &x = r.saved[0], &bias = r.saved[1], &y = r.saved[2];
  const Tensors weights(r.saved.begin() + 3, r.saved.end());
  const int64_t m = x.size(0), k = x.size(1);
  Tensors dy, result(2 + weights.size());
  for (const auto& gradient : r.gradients) dy.push_back(gradient.contiguous());
  if (rows.empty()) rows.push_back({0, m});
  const std::vector<bool> needed(r.needed.begin() + 2, r.needed.end());
  const bool of_x = r.needed[0], of_bias = r.needed[1];
  if constexpr (std::is_same_v<T, float>)
    if (narrow(m, k, columns_of(weights))) {
      narrow_backward(x, bias, y, weights, dy, needed, of_x, of_bias, std::move(rows), scale, result);
      return result;
    }
  if (y.defined()) dy[0] = through_relu(dy[0], y, scale);
  if (of_x) result[0] = gradient_of_x<T>(dy, weights, k, rows);
  if (of_bias) {
    result[1] = at::empty_like(bias);
    column_sums(dy[0].const_data_ptr<float>(), m, dy[0].size(1), result[1].mutable_data_ptr<float>());
  }
  const auto dw = gradients_of_weights<T>(dy, needed, x);
  std::copy(dw.begin(), dw.end(), result.begin() + 2);
  return result;
}

template Tensors linear_gradients<float>(const Received&, std::vector<RowRange>, float);
template Tensors linear_gradients<at::BFloat16>(const Received&, std::vector<RowRange>, float);

}  // namespace lapse
