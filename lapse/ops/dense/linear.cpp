#include "lapse/ops/dense/linear.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/linear_gradients.h"
#include "lapse/ops/dense/matmul.h"
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
Tensor product(const Tensor& x, const Tensor& weight, const AfterProduct& after) {
  const int64_t m = x.size(0), k = x.size(1), n = weight.size(0);
  const Panels<T> panels(weight.const_data_ptr<float>(), k, n, true);
  Tensor y = empty_rows({m, n});
  multiply(Left<T>::plain(x.const_data_ptr<float>(), m, k), {{0, m}}, panels, y.mutable_data_ptr<float>(), false,
           after);
  return y;
}

Tensors products(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  Tensors y;
  AfterProduct after{.bias = o.bias.defined() ? o.bias.const_data_ptr<float>() : nullptr, .relu = o.relu};
  if (o.dropout) after.dropout = o.dropout->draw();
  for (const auto& weight : weights)
    y.push_back(o.bfloat16 ? product<at::BFloat16>(x, weight, after) : product<float>(x, weight, after));
  return y;
}

/// The products of contiguous tensors, with a gradient.
Tensors products_with_gradient(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  const Tensors y = below_autograd([&] { return products(x, weights, o); });
  Tensors inputs = {x, o.bias}, saved = {x, o.bias, o.relu ? y[0] : Tensor()};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  saved.insert(saved.end(), weights.begin(), weights.end());
  std::vector<RowRange> rows;
  for (const auto& [begin, end] : o.gradient_rows) rows.push_back({begin, end});
  const auto backward = o.bfloat16 ? linear_gradients<at::BFloat16> : linear_gradients<float>;
  const float scale = o.dropout ? o.dropout->scale() : 1;
  return with_gradient(inputs, y, {"linear", saved, [=](const Received& r) { return backward(r, rows, scale); }});
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
  TORCH_CHECK(!o.dropout || o.relu, "linear: dropout goes with relu");
  if (o.bias.defined())
    TORCH_CHECK(o.bias.dim() == 1 && o.bias.size(0) == weights[0].size(0) && o.bias.scalar_type() == x.scalar_type(),
                "linear: the bias must be ", x.scalar_type(), " [", weights[0].size(0), "], got ", o.bias.scalar_type(),
                " ", o.bias.sizes());
  int64_t end = 0;
  const int64_t m = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
  for (const auto& range : o.gradient_rows) {
    TORCH_CHECK(range.first >= end && range.second >= range.first && range.second <= m,
                "linear: gradient_rows must be ascending and disjoint within ", m, " rows, got ", range.first, " to ",
                range.second);
    end = range.second;
  }
}

/// What follows the sum in a product of libtorch's.
Tensor finished(Tensor y, const LinearOptions& o) {
  if (o.relu) y = at::relu(y);
  return o.dropout ? dropped(y, *o.dropout) : y;
}

Tensors rounded_layers(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  Tensors all;
  auto shape = x.sizes().vec();
  for (const auto& weight : weights) {
    Tensor y = rounded_linear(at::reshape(x, {-1, x.size(-1)}), weight);
    if (o.bias.defined()) y = y + o.bias;
    shape.back() = weight.size(0);
    all.push_back(finished(at::reshape(y, shape), o));
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
  if (o.dropout && !at::GradMode::is_enabled()) {  // only training drops: the paths without gradients need not know
    LinearOptions without = o;
    without.dropout.reset();
    return {dropped(lapse::linear(x, weights, without)[0], *o.dropout)};
  }
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
    for (const auto& weight : weights)
      y.push_back(finished(at::linear(x, weight, o.bias.defined() ? std::optional<Tensor>(o.bias) : std::nullopt), o));
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
