#include "bench/eager.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

using at::Tensor;

constexpr double kHidden = -1e8;  // a logit whose exponential is 0; finite, so that a query may see nothing
constexpr double kTolerance = 1e-5;

/// Row t of x [B, H, K, P] moved right by t: [B, H, K, P + K], zeros around it.
Tensor skew(const Tensor& x) {
  const int64_t B = x.size(0), H = x.size(1), K = x.size(2), P = x.size(3);
  const Tensor padded = at::constant_pad_nd(x, {0, K + 1}).view({B, H, K * (P + K + 1)});
  return padded.narrow(2, 0, K * (P + K)).view({B, H, K, P + K});
}

void require_gradients(std::initializer_list<Tensor*> leaves) {
  for (Tensor* leaf : leaves) *leaf = leaf->detach().clone().set_requires_grad(true);
}

void forget_gradients(std::initializer_list<Tensor*> leaves) {
  for (Tensor* leaf : leaves) leaf->mutable_grad().reset();
}

/// Packed rows as [B, n, ...].
Tensor dense(const Tensor& rows, int64_t batch) {
  auto shape = rows.sizes().vec();
  shape[0] = shape[0] / batch;
  shape.insert(shape.begin(), batch);
  return rows.view(shape);
}

void require_close(const char* what, const Tensor& got, const Tensor& expected) {
  const double worst = (got - expected).abs().max().item<double>(), largest = expected.abs().max().item<double>();
  if (!(worst <= kTolerance * largest))
    fail(fmt::format("the eager reference and the operator disagree on {}: by {:.3g} of {:.3g}", what, worst, largest));
}

}  // namespace

EagerOutputs eager_attention(const EagerInputs& x) {
  const int64_t K = x.q.size(1), n = x.k.size(1), P = x.position.size(0), near = std::min(n, K + P);
  const Tensor q = x.q.transpose(1, 2), k = x.k.transpose(1, 2), v = x.v.transpose(1, 2);  // [B, H, K | n, D]
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));

  Tensor logits = at::matmul(q, k.transpose(2, 3));
  // Query t, at the time of row n - K + t, has row n - K - P + (t + P - a) at age a: column P - a, moved right by t.
  const Tensor by_age = skew(at::matmul(q, x.position.flip(0).t()));
  logits.narrow(3, n - near, near).add_(by_age.narrow(3, K + P - near, near));

  const Tensor age = at::arange(n - K, n).unsqueeze(1) - at::arange(n).unsqueeze(0);  // [K, n]
  const Tensor remaining = x.span.unsqueeze(1) - age;                                 // r, [B, K, n]
  Tensor visible = age >= 1;
  if (x.first.defined()) visible = at::logical_and(visible, at::arange(n) >= x.first.unsqueeze(2));
  const Tensor m = at::clamp(remaining / x.ramp + 1, 0, 1) * visible;
  const Tensor weight = m.unsqueeze(1).to(q.scalar_type());
  const Tensor a = at::softmax((logits * scale).masked_fill(weight <= 0, kHidden), 3) * weight;
  const Tensor normalised = a / (a.sum(3, true) + 1e-8);
  const Tensor on_ramp = at::logical_and(m > 0, m < 1);
  return {at::matmul(normalised, v).transpose(1, 2), (remaining * on_ramp).sum(at::IntArrayRef{1, 2})};
}

EagerCall::EagerCall(const Call& call)
    : leaves{call.inputs.q,
             dense(call.inputs.k, call.inputs.q.size(0)),
             dense(call.inputs.v, call.inputs.q.size(0)),
             dense(*call.options.row_span, call.inputs.q.size(0)),
             *call.options.position,
             call.options.ramp},
      grad_out_(call.grad_out),
      grad_ramp_sum_(call.grad_ramp_sum) {
  require_gradients({&leaves.q, &leaves.k, &leaves.v, &leaves.span, &leaves.position});
}

void EagerCall::run() {
  forget_gradients({&leaves.q, &leaves.k, &leaves.v, &leaves.span, &leaves.position});
  outputs = eager_attention(leaves);
  torch::autograd::backward({outputs.out, outputs.ramp_sum}, {grad_out_, grad_ramp_sum_});
}

FusedLibtorchCall::FusedLibtorchCall(const Call& call) {
  const int64_t B = call.inputs.q.size(0);
  q_ = call.inputs.q.transpose(1, 2);
  k_ = dense(call.inputs.k, B).transpose(1, 2), v_ = dense(call.inputs.v, B).transpose(1, 2);
  grad_out_ = call.grad_out.transpose(1, 2);
  require_gradients({&q_, &k_, &v_});
}

void FusedLibtorchCall::run() {
  forget_gradients({&q_, &k_, &v_});
  at::scaled_dot_product_attention(q_, k_, v_).backward(grad_out_);
}

void check_eager() {
  constexpr int64_t B = 2, n = 20;
  Call call = make_call({.rows = {n, n}, .queries = 6, .heads = 2, .head_dim = 8});
  call.options.ramp = 4;
  call.options.row_span = at::rand({B * n}) * n - 2;  // m = 0, ramp and m = 1 all occur; on a kink with probability 0
  call.grad_ramp_sum = at::rand({B});
  const auto y = ramp_attention(call.inputs, call.options);
  const auto g = ramp_attention_backward(call.grad_out, call.grad_ramp_sum, call.inputs, call.options, y);
  EagerCall eager(call);
  eager.run();
  const EagerInputs& x = eager.leaves;
  require_close("the output", y.out, eager.outputs.out.detach());
  require_close("the loss", y.ramp_sum, eager.outputs.ramp_sum.detach());
  require_close("the gradient of q", g.q, x.q.grad());
  require_close("the gradient of k", g.k, x.k.grad().flatten(0, 1));
  require_close("the gradient of v", g.v, x.v.grad().flatten(0, 1));
  require_close("the gradient of the spans", g.row_span, x.span.grad().flatten());
  require_close("the gradient of the positions", g.position, x.position.grad());
}

}  // namespace lapse::bench
