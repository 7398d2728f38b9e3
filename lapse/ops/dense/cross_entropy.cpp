#include "lapse/ops/dense/cross_entropy.h"

#include <ATen/core/grad_mode.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/layer_passes.h"
#include "lapse/ops/dense/row_pieces.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {
namespace {

using at::Tensor;

/// Calls f(r) for each row, on several threads.
template <class F>
void for_each_row(const Tensor& logits, const F& f) {
  for_each_piece_of_rows(logits.size(0), logits.size(1), [&](int64_t, int64_t begin, int64_t rows) {
    for (int64_t r = begin; r < begin + rows; ++r) f(r);
  });
}

Tensor nats_of(const Tensor& logits, const Tensor& target) {
  const int64_t V = logits.size(1);
  Tensor nats = at::empty({logits.size(0)}, logits.options());
  const auto* x = logits.const_data_ptr<float>();
  const auto* right = target.const_data_ptr<int64_t>();
  auto* to = nats.mutable_data_ptr<float>();
  for_each_row(logits, [&](int64_t r) { to[r] = cross_entropy_pass(x + r * V, V, right[r]); });
  return nats;
}

/// The logits' gradient, in their place. Their version tells autograd: it refuses to read them afterwards, as another
/// backward pass would, or that of an operator which has kept its result.
Tensor gradient(const Tensor& logits, const Tensor& target, const Tensor& nats, const Tensor& dy) {
  const int64_t V = logits.size(1);
  Tensor dx = logits.detach();
  auto* x = dx.mutable_data_ptr<float>();
  const auto* right = target.const_data_ptr<int64_t>();
  const auto *of = nats.const_data_ptr<float>(), *g = dy.const_data_ptr<float>();
  for_each_row(logits, [&](int64_t r) { cross_entropy_pass_backward(x + r * V, V, right[r], of[r], g[r]); });
  logits.unsafeGetTensorImpl()->bump_version();
  return dx;
}

void check(const Tensor& logits, const Tensor& target) {
  TORCH_CHECK(logits.dim() == 2 && target.dim() == 1 && target.size(0) == logits.size(0) &&
                  target.scalar_type() == at::kLong && target.device() == logits.device(),
              "cross_entropy: needs logits [P, V] and int64 targets [P] on one device, got ", logits.sizes(), " and ",
              target.scalar_type(), " ", target.sizes());
  if (!target.device().is_cpu() || target.numel() == 0) return;
  const auto [first, last] = at::aminmax(target);
  const auto least = first.item<int64_t>(), most = last.item<int64_t>();
  TORCH_CHECK(least >= 0 && most < logits.size(1), "cross_entropy: target ", least < 0 ? least : most,
              " is none of the ", logits.size(1), " logits");
}

}  // namespace

Tensor cross_entropy(Tensor&& given, const Tensor& target) {
  check(given, target);
  if (given.scalar_type() != at::kFloat || !given.device().is_cpu() || given.numel() == 0)
    return at::cross_entropy_loss(given, target, {}, at::Reduction::None);
  const Tensor logits = given.contiguous(), right = target.contiguous();
  const Tensor nats = nats_of(logits, right);
  if (!at::GradMode::is_enabled() || !logits.requires_grad()) return nats;
  return with_gradient({logits}, nats,
                       {"cross_entropy", {logits, right, nats}, [](const Received& r) {
                          return std::vector{gradient(r.saved[0], r.saved[1], r.saved[2], r.gradients[0].contiguous())};
                        }});
}

}  // namespace lapse
