// Gradients of our own for what is computed below autograd. libtorch's templates for this cost the compiler some six
// seconds for each file; here they are instantiated once.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "lapse/ops/without_autograd.h"

namespace lapse {

/// What a backward pass is given.
struct Received {
  std::vector<at::Tensor> gradients;  ///< of each output; zeros where nothing depends on it
  std::vector<at::Tensor> saved;      ///< what OwnGradient::saved was
  std::vector<bool> needed;           ///< of each input: whether its gradient is of use
};

struct OwnGradient {
  const char* name;               ///< of the operator, for messages
  std::vector<at::Tensor> saved;  ///< inputs, outputs, and others: what the backward pass reads; may be undefined
  /// The gradient of each input, undefined where there is none or it is not needed. Runs below autograd: there are no
  /// second derivatives, and a backward pass with create_graph is refused.
  std::function<std::vector<at::Tensor>(const Received&)> backward;
};

/// What `f` returns, computed below autograd.
template <class F>
auto below_autograd(const F& f) {
  const InsideKernel inside;
  return f();
}

/// `outputs`, made of `inputs` below autograd, as autograd is to see them. Inputs may be undefined.
std::vector<at::Tensor> with_gradient(at::TensorList inputs, const std::vector<at::Tensor>& outputs, OwnGradient own);
at::Tensor with_gradient(at::TensorList inputs, const at::Tensor& output, OwnGradient own);

}  // namespace lapse
