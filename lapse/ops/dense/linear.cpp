#include "lapse/ops/dense/linear.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/matmul.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/dense/narrow.h"
#include "lapse/ops/dense/rounded_linear.h"
#include "lapse/ops/own_gradient.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Of each weight, for few_rows x [..., k].
Tensors few_rows_of(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  Tensors y;
  y.reserve(weights.size());
  c10::SmallVector<FewRowsProduct, 4> products;
  c10::SmallVector<int64_t, 4> shape(x.sizes());
  const float* bias = o.bias.defined() ? o.bias.const_data_ptr<float>() : nullptr;
  for (const auto& weight : weights) {
    shape.back() = weight.size(0);
    y.push_back(empty_rows(shape));
    products.push_back({weight, y.back().mutable_data_ptr<float>(), bias});
  }
  multiply_few_rows(x.const_data_ptr<float>(), x.numel() / x.size(-1), x.size(-1), products, o.relu);
  return y;
}

template <class T>
Tensor product(const Tensor& x, const Tensor& weight, const float* bias, bool relu) {
  const int64_t m = x.size(0), k = x.size(1), n = weight.size(0);
  const Panels<T> panels(weight.const_data_ptr<float>(), k, n, true);
  Tensor y = empty_rows({m, n});
  multiply(Left<T>::plain(x.const_data_ptr<float>(), m, k), {{0, m}}, panels, y.mutable_data_ptr<float>(), false, bias,
           relu);
  return y;
}

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

/// dy where y > 0, else 0: relu's gradient, made once for all that follows from it.
Tensor through_relu(const Tensor& dy, const Tensor& y) {
  Tensor result = at::empty_like(dy);
  constexpr int64_t kPiece = 1 << 14;
  const int64_t n = dy.numel();
  for_each_task((n + kPiece - 1) / kPiece, [&](int64_t i) {
    const int64_t at = i * kPiece;
    where_positive(dy.const_data_ptr<float>() + at, y.const_data_ptr<float>() + at,
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
                     const std::vector<bool>& needed, bool of_x, bool of_bias, std::vector<RowRange> rows,
                     Tensors& result) {
  NarrowLayer layer{.x = x.const_data_ptr<float>(), .m = x.size(0), .k = x.size(1), .rows = std::move(rows)};
  for (size_t i = 0; i < weights.size(); ++i) {
    if (needed[i]) result[2 + i] = at::empty_like(weights[i]);
    layer.products.push_back({dy[i].const_data_ptr<float>(), weights[i].const_data_ptr<float>(), weights[i].size(0),
                              needed[i] ? result[2 + i].mutable_data_ptr<float>() : nullptr});
  }
  if (y.defined()) layer.relu = y.const_data_ptr<float>();
  if (of_x) layer.dx = (result[0] = at::empty_like(x)).mutable_data_ptr<float>();
  if (of_bias) layer.dbias = (result[1] = at::empty_like(bias)).mutable_data_ptr<float>();
  narrow_gradients(layer);
}

Tensors products(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  Tensors y;
  const float* bias = o.bias.defined() ? o.bias.const_data_ptr<float>() : nullptr;
  for (const auto& weight : weights)
    y.push_back(o.bfloat16 ? product<at::BFloat16>(x, weight, bias, o.relu) : product<float>(x, weight, bias, o.relu));
  return y;
}

/// Of x, of the bias, and of the weights. Saved are x, the bias, y where it went through relu, and the weights.
template <class T>
Tensors gradients(const Received& r, std::vector<RowRange> rows) {
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
      narrow_backward(x, bias, y, weights, dy, needed, of_x, of_bias, std::move(rows), result);
      return result;
    }
  if (y.defined()) dy[0] = through_relu(dy[0], y);
  if (of_x) result[0] = gradient_of_x<T>(dy, weights, k, rows);
  if (of_bias) {
    result[1] = at::empty_like(bias);
    column_sums(dy[0].const_data_ptr<float>(), m, dy[0].size(1), result[1].mutable_data_ptr<float>());
  }
  const auto dw = gradients_of_weights<T>(dy, needed, x);
  std::copy(dw.begin(), dw.end(), result.begin() + 2);
  return result;
}

/// The products of contiguous tensors, with a gradient.
Tensors products_with_gradient(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  const Tensors y = below_autograd([&] { return products(x, weights, o); });
  Tensors inputs = {x, o.bias}, saved = {x, o.bias, o.relu ? y[0] : Tensor()};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  saved.insert(saved.end(), weights.begin(), weights.end());
  std::vector<RowRange> rows;
  for (const auto& [begin, end] : o.gradient_rows) rows.push_back({begin, end});
  const auto backward = o.bfloat16 ? gradients<at::BFloat16> : gradients<float>;
  return with_gradient(inputs, y, {"linear", saved, [=](const Received& r) { return backward(r, rows); }});
}

/// bfloat16 weights of float32 inputs.
bool rounded(const Tensor& x, const Tensor& weight) {
  return x.scalar_type() == at::kFloat && weight.scalar_type() == at::kBFloat16;
}

void check(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  TORCH_CHECK(!weights.empty() && x.dim() >= 1, "linear: needs an input of at least one dimension, and a weight");
  for (const auto& weight : weights)
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == x.size(-1) && weight.device() == x.device() &&
                    weight.scalar_type() == weights[0].scalar_type() &&
                    (weight.scalar_type() == x.scalar_type() || rounded(x, weight)),
                "linear: the weight must be ", x.scalar_type(), " [out, ", x.size(-1), "], got ", weight.scalar_type(),
                " ", weight.sizes());
  TORCH_CHECK(!rounded(x, weights[0]) || !at::GradMode::is_enabled(), "linear: bfloat16 weights have no gradients");
  TORCH_CHECK(!o.bfloat16 || has_bfloat16_products(x.device()), "linear: this processor does not multiply bfloat16");
  TORCH_CHECK(weights.size() == 1 || (!o.bias.defined() && !o.relu), "linear: bias and relu go with one weight");
  if (o.bias.defined())
    TORCH_CHECK(o.bias.dim() == 1 && o.bias.size(0) == weights[0].size(0) && o.bias.scalar_type() == x.scalar_type(),
                "linear: the bias must be ", x.scalar_type(), " [", weights[0].size(0), "], got ", o.bias.scalar_type(),
                " ", o.bias.sizes());
  int64_t end = 0;
  const int64_t m = x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
  for (const auto& range : o.gradient_rows) {
    TORCH_CHECK(range.first >= end && range.second >= range.first && range.second <= m,
                "linear: gradient_rows must be ascending and disjoint within ", m, " rows, got ", range.first, " to ",
                range.second);
    end = range.second;
  }
}

Tensors rounded_layers(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  Tensors all;
  auto shape = x.sizes().vec();
  for (const auto& weight : weights) {
    Tensor y = rounded_linear(at::reshape(x, {-1, x.size(-1)}), weight);
    if (o.bias.defined()) y = y + o.bias;
    if (o.relu) y = at::relu(y);
    shape.back() = weight.size(0);
    all.push_back(at::reshape(y, shape));
  }
  return all;
}

}  // namespace

bool has_bfloat16_products(at::Device device) {
  if (!device.is_cpu()) return true;
  static const bool has = [] {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx512bf16") || at::get_cpu_capability() != "AVX512") return false;
    try {
      alignas(64) at::BFloat16 a[16 * 16] = {};
      alignas(64) float c[16 * 16];
      at::native::cpublas::brgemm(16, 16, 16, 16, 16, 16, false, a, a, c, true);
      at::native::cpublas::brgemm_release();
      return true;
    } catch (const c10::Error&) {
    }
#endif
    return false;
  }();
  return has;
}

Tensors linear(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  check(x, weights, o);
  const auto plain = [](const Tensor& w) { return w.is_contiguous() && w.numel() > 0; };
  if (few_rows(x) && std::all_of(weights.begin(), weights.end(), plain) && (!o.bias.defined() || plain(o.bias)))
    return few_rows_of(x, weights, o);
  const bool rounds = rounded(x, weights[0]);
  const int64_t k = x.size(-1), m = k == 0 ? 0 : x.numel() / k;
  Tensors y;
  const bool few = m <= kFewRows;
  const bool nothing = m == 0 || std::any_of(weights.begin(), weights.end(), [](auto& w) { return w.numel() == 0; });
  if ((o.bfloat16 || rounds) && !x.device().is_cpu() && !nothing) return rounded_layers(x, weights, o);
  if (rounds && (!few || nothing)) {
    Tensors wide;
    for (const auto& weight : weights) wide.push_back(weight.to(at::kFloat));
    LinearOptions options = o;
    options.bfloat16 = !few && has_bfloat16_products(x.device());
    return lapse::linear(x, wide, options);
  }
  if (x.scalar_type() != at::kFloat || !x.device().is_cpu() || nothing) {
    for (const auto& weight : weights) {
      y.push_back(at::linear(x, weight, o.bias.defined() ? std::optional<Tensor>(o.bias) : std::nullopt));
      if (o.relu) y.back() = at::relu(y.back());
    }
    return y;
  }
  Tensors contiguous;
  for (const auto& weight : weights) contiguous.push_back(weight.contiguous());
  const Tensor flat = reshaped(x, {m, k}).contiguous();
  LinearOptions options = o;
  if (few) options.bfloat16 = false;  // as the options say
  if (o.bias.defined()) options.bias = o.bias.contiguous();
  if (at::GradMode::is_enabled())  // few rows too: libtorch's own products round otherwise on more threads
    y = products_with_gradient(flat, contiguous, options);
  else if (few)
    y = few_rows_of(flat, contiguous, options);
  else
    y = products(flat, contiguous, options);
  auto shape = x.sizes().vec();
  for (auto& result : y) {
    shape.back() = result.size(1);
    result = reshaped(result, shape);
  }
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const LinearOptions& o) {
  return lapse::linear(x, std::vector{weight}, o)[0];
}

}  // namespace lapse
