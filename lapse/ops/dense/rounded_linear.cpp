#include "lapse/ops/dense/rounded_linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rounded(const Tensor& x) { return x.to(at::kBFloat16); }

/// a b of bfloat16 matrices in float32. NVIDIA's GPUs have a product that keeps its sums as they are; elsewhere the
/// same numbers are multiplied in float32, in which a product of two bfloat16 is exact.
Tensor product(const Tensor& a, const Tensor& b) {
  return a.is_cuda() ? at::mm(a, b, at::kFloat) : at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

class Function : public torch::autograd::Function<Function> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor a = rounded(x), w = rounded(weight);
    ctx->save_for_backward({a, w});
    return product(a, w.t());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear: has no second derivatives (create_graph)");
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = ctx->get_saved_variables();
    const Tensor dy = rounded(grads[0]);
    variable_list result(2);
    if (ctx->needs_input_grad(0)) result[0] = product(dy, saved[1]);
    if (ctx->needs_input_grad(1)) result[1] = product(dy.t(), saved[0]);
    return result;
  }
};

}  // namespace

Tensor rounded_linear(const Tensor& x, const Tensor& weight) { return Function::apply(x, weight); }

}  // namespace lapse
