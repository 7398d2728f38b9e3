#include "lapse/ops/dense/swiglu.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/layer_passes.h"
#include "lapse/ops/own_gradient.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

/// Calls f(first element, elements) for pieces of n elements.
template <class F>
void for_each_piece(int64_t n, const F& f) {
  constexpr int64_t kPiece = 1 << 14;
  for_each_task((n + kPiece - 1) / kPiece, [&](int64_t i) { f(i * kPiece, std::min(kPiece, n - i * kPiece)); });
}

Tensor gated(const Tensor& gate, const Tensor& x) {
  Tensor y = at::empty(x.sizes(), x.options());
  for_each_piece(x.numel(), [&](int64_t at, int64_t n) {
    swiglu_pass(gate.const_data_ptr<float>() + at, x.const_data_ptr<float>() + at, n, y.mutable_data_ptr<float>() + at);
  });
  return y;
}

std::vector<Tensor> gradients(const Tensor& dy, const Tensor& gate, const Tensor& x) {
  Tensor dgate = at::empty(x.sizes(), x.options()), dx = at::empty(x.sizes(), x.options());
  for_each_piece(x.numel(), [&](int64_t at, int64_t n) {
    swiglu_pass_backward(dy.const_data_ptr<float>() + at, gate.const_data_ptr<float>() + at,
                         x.const_data_ptr<float>() + at, n, dgate.mutable_data_ptr<float>() + at,
                         dx.mutable_data_ptr<float>() + at);
  });
  return {dgate, dx};
}

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& x) {
  TORCH_CHECK(gate.sizes() == x.sizes() && gate.scalar_type() == x.scalar_type() && gate.device() == x.device(),
              "swiglu: gate and x must be of one shape and dtype, got ", gate.scalar_type(), " ", gate.sizes(), " and ",
              x.scalar_type(), " ", x.sizes());
  if (x.scalar_type() != at::kFloat || !x.device().is_cpu()) return at::silu(gate) * x;
  const Tensor a = gate.contiguous(), b = x.contiguous();
  const Tensor y = gated(a, b);
  if (!at::GradMode::is_enabled()) return y;
  return with_gradient({a, b}, y, {"swiglu", {a, b}, [](const Received& r) {
                                     return gradients(r.gradients[0].contiguous(), r.saved[0], r.saved[1]);
                                   }});
}

}  // namespace lapse
