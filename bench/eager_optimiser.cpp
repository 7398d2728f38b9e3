#include "bench/eager_optimiser.h"

#include <ATen/core/grad_mode.h>

#include "lapse/ops/aten.h"

namespace lapse::bench {

using at::Tensor;

EagerOptimiser::EagerOptimiser(const OptimiserConfig& config, std::vector<Tensor> parameters)
    : config_(config), parameters_(std::move(parameters)) {
  for (const Tensor& parameter : parameters_) {
    if (config.name == "adam") first.push_back(at::zeros_like(parameter).detach());
    second.push_back(at::zeros_like(parameter).detach());
  }
}

void EagerOptimiser::zero_gradients() {
  for (Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void EagerOptimiser::clip_and_step() {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> values, gradients;
  for (const Tensor& parameter : parameters_)
    values.push_back(parameter.detach()), gradients.push_back(parameter.grad());
  if (config_.clip > 0) {
    const Tensor norm = at::stack(at::_foreach_norm(gradients)).norm();
    at::_foreach_mul_(gradients, (config_.clip / (norm + 1e-6)).clamp_max(1).item());
  }
  ++steps;
  if (config_.name == "adam") {
    const std::vector<Tensor> counts(values.size(), at::full({}, static_cast<float>(steps), at::kFloat));
    at::_fused_adam_(values, gradients, first, second, {}, counts, config_.rate, config_.beta1, config_.beta2, 0,
                     config_.epsilon, false, false);
    return;
  }
  at::_foreach_mul_(second, config_.smoothing);
  at::_foreach_addcmul_(second, gradients, gradients, 1 - config_.smoothing);
  auto root = at::_foreach_sqrt(second);
  at::_foreach_add_(root, config_.epsilon);
  at::_foreach_addcdiv_(values, gradients, root, -config_.rate);
}

}  // namespace lapse::bench
