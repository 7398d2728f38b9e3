#include "lapse/ops/dense/rounded_linear.h"

#include "lapse/ops/aten.h"
#include "lapse/ops/own_gradient.h"

namespace lapse {
namespace {

using at::Tensor;

Tensor rounded(const Tensor& x) { return x.to(at::kBFloat16); }

/// a b of bfloat16 matrices in float32. NVIDIA's GPUs have a product that keeps its sums as they are; elsewhere the
/// same numbers are multiplied in float32, in which a product of two bfloat16 is exact.
Tensor product(const Tensor& a, const Tensor& b) {
  return a.is_cuda() ? at::mm(a, b, at::kFloat) : at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

std::vector<Tensor> gradients(const Received& r) {
  const Tensor dy = rounded(r.gradients[0]);
  return {r.needed[0] ? product(dy, r.saved[1]) : Tensor(), r.needed[1] ? product(dy.t(), r.saved[0]) : Tensor()};
}

}  // namespace

Tensor rounded_linear(const Tensor& x, const Tensor& weight) {
  Tensor a, w;
  const Tensor y = below_autograd([&] {
    a = rounded(x), w = rounded(weight);
    return product(a, w.t());
  });
  return with_gradient({x, weight}, y, {"linear", {a, w}, gradients});
}

}  // namespace lapse
