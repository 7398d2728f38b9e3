#include "lapse/ops/dense/dropout.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/mix64.h"
#include "lapse/ops/own_gradient.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

/// Contiguous float32 x times its factors, on several threads: which element draws what does not depend on them.
Tensor multiplied(const Tensor& x, const DropoutDraw& draw) {
  constexpr int64_t kPiece = 1 << 14;
  const int64_t n = x.numel();
  Tensor y = at::empty(x.sizes(), x.options());
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  for_each_task((n + kPiece - 1) / kPiece, [&](int64_t i) {
    const int64_t begin = i * kPiece;
    dropout_pass(draw, from + begin, begin, std::min(kPiece, n - begin), to + begin);
  });
  return y;
}

/// The factors of x's elements, in x's type and on its device. Element i has one half, the lower or the upper, of the
/// 64 bits of i / 2. Some are drawn at a time, for their bits take more room than x.
Tensor factors(const Tensor& x, const Dropout& how) {
  constexpr int64_t kPairs = 1 << 22;
  const int64_t pairs = (x.numel() + 1) / 2;
  const DropoutDraw draw = how.draw();
  const auto key = static_cast<int64_t>(draw.key), least = static_cast<int64_t>(draw.least);
  const Tensor all = at::empty({pairs, 2}, x.options());
  for (int64_t at = 0; at < pairs; at += kPairs) {
    const int64_t some = std::min(kPairs, pairs - at);
    const Tensor bits = mix64(at::arange(at, at + some, x.options().dtype(at::kLong)) + key);
    for (const int half : {0, 1}) {
      const Tensor drawn = at::bitwise_and(half == 0 ? bits : at::bitwise_right_shift(bits, 32), 0xFFFFFFFF);
      all.narrow(0, at, some).select(1, half).copy_(drawn >= least);
    }
  }
  return all.flatten().narrow(0, 0, x.numel()).mul_(1 / (1 - how.p)).view(x.sizes());
}

}  // namespace

DropoutDraw Dropout::draw() const {
  TORCH_CHECK(p >= 0 && p < 1, "dropout: p must be in [0, 1), got ", p);
  return {mix64(seed), static_cast<uint32_t>(std::ldexp(p, 32)), scale()};
}

Tensor dropped(const Tensor& x, const Dropout& how) {
  if (x.scalar_type() != at::kFloat || !x.device().is_cpu()) return x * factors(x.detach(), how);
  const Tensor from = x.contiguous();
  const Tensor y = below_autograd([&] { return multiplied(from, how.draw()); });
  if (!at::GradMode::is_enabled() || !from.requires_grad()) return y;
  return with_gradient({from}, y, {"dropout", {}, [how](const Received& r) {
                                     return std::vector{multiplied(r.gradients[0].contiguous(), how.draw())};
                                   }});
}

}  // namespace lapse
