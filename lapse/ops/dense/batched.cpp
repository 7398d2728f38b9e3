#include "lapse/ops/dense/batched.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "lapse/ops/aten.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {
namespace {

using at::Tensor;

Tensor products(const Tensor& a, const Tensor& b) {
  const Tensor left = a.flatten(0, -3), right = b.flatten(0, -3);
  Tensor y = at::empty({left.size(0), left.size(1), right.size(2)}, a.options());
  // Within a parallel region a product keeps to its thread: even a single one needs a region of two.
  at::parallel_for(0, std::max<int64_t>(2, y.size(0)), 1, [&](int64_t begin, int64_t end) {
    at::NoGradGuard no_grad;
    for (int64_t i = begin; i < std::min(end, y.size(0)); ++i) {
      Tensor out = y.select(0, i);
      at::mm_out(out, left.select(0, i), right.select(0, i));
    }
  });
  auto shape = a.sizes().vec();
  shape.back() = b.size(-1);
  return y.view(shape);
}

std::vector<Tensor> gradients(const Received& r) {
  const auto turned = [](const Tensor& x) { return x.transpose(-1, -2); };
  const Tensor& dy = r.gradients[0];
  return {r.needed[0] ? products(dy, turned(r.saved[1])) : Tensor(),
          r.needed[1] ? products(turned(r.saved[0]), dy) : Tensor()};
}

}  // namespace

Tensor batched_product(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() >= 3 && a.dim() == b.dim() && a.size(-1) == b.size(-2) &&
                  a.sizes().slice(0, a.dim() - 2) == b.sizes().slice(0, b.dim() - 2),
              "batched_product: ", a.sizes(), " times ", b.sizes());
  if (!a.device().is_cpu()) return at::matmul(a, b);
  const Tensor y = below_autograd([&] { return products(a, b); });
  return at::GradMode::is_enabled() ? with_gradient({a, b}, y, {"batched_product", {a, b}, gradients}) : y;
}

}  // namespace lapse
