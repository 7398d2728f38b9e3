#include "lapse/ops/own_gradient.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace lapse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The backward pass, as autograd's context keeps it.
struct Kept : torch::CustomClassHolder {
  const char* name = nullptr;
  decltype(OwnGradient::backward) backward;
  std::vector<bool> defined;  // of each input; libtorch is given these alone
};

class Function : public torch::autograd::Function<Function> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList, const variable_list& outputs,
                               const OwnGradient& own, const c10::intrusive_ptr<Kept>& kept) {
    context->save_for_backward(own.saved);
    context->saved_data["kept"] = at::IValue::make_capsule(kept);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["kept"].toCapsule();
    const auto& kept = static_cast<const Kept&>(*capsule);
    TORCH_CHECK(!at::GradMode::is_enabled(), kept.name, ": has no second derivatives (create_graph)");
    Received received{std::move(gradients), context->get_saved_variables(), {}};
    size_t given = 0;
    for (const bool defined : kept.defined) received.needed.push_back(defined && context->needs_input_grad(given++));
    const variable_list all = below_autograd([&] { return kept.backward(received); });
    variable_list result;
    for (size_t i = 0; i < kept.defined.size(); ++i)
      if (kept.defined[i]) result.push_back(all[i]);
    result.resize(result.size() + 3);  // forward's other arguments
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> with_gradient(at::TensorList inputs, const std::vector<at::Tensor>& outputs, OwnGradient own) {
  const auto kept = c10::make_intrusive<Kept>();
  kept->name = own.name;
  kept->backward = std::move(own.backward);
  variable_list given;
  for (const auto& input : inputs) {
    kept->defined.push_back(input.defined());
    if (input.defined()) given.push_back(input);
  }
  return Function::apply(at::TensorList(given), outputs, own, kept);
}

at::Tensor with_gradient(at::TensorList inputs, const at::Tensor& output, OwnGradient own) {
  return with_gradient(inputs, std::vector{output}, std::move(own))[0];
}

}  // namespace lapse
