#include "lapse/train/optimiser.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

double learning_rate(const OptimiserConfig& config, int64_t n, int64_t total) {
  if (n < config.warmup) return config.rate * static_cast<double>(n) / static_cast<double>(config.warmup);
  if (config.schedule == "constant" || total <= config.warmup) return config.rate;
  const double progress = static_cast<double>(n - config.warmup) / static_cast<double>(total - config.warmup);
  return config.rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, progress)));
}

std::vector<std::string> slots_of(const OptimiserConfig& config) {
  if (config.name == "adam" || config.name == "adamw") return {"exp_avg", "exp_avg_sq"};
  if (config.name == "rmsprop") return {"square_avg"};
  if (config.name == "sgd" && config.momentum > 0) return {"momentum"};
  return {};
}

Optimiser::Optimiser(const OptimiserConfig& config, NamedTensors parameters)
    : config_(config), parameters_(std::move(parameters)) {
  check_values(config_.fields({}), "optimiser");
  for (const auto& name : slots_of(config))
    for (const auto& [_, parameter] : parameters_) slots_[name].push_back(at::zeros_like(*parameter));
  lay_out_gradients();
}

std::vector<Tensor> Optimiser::values() const {
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : parameters_) all.push_back(parameter->detach());
  return all;
}

std::vector<Tensor> Optimiser::gradients() const {
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : parameters_) all.push_back(parameter->grad());
  return all;
}

// Every parameter always has a gradient, so that one that a block does not use moves by its moments alone. All lie in
// one tensor, each at the beginning of a cache line, so that ranks add them up as they are.
void Optimiser::lay_out_gradients() {
  constexpr int64_t kLine = 16;
  const auto lines = [](const Tensor& x) { return (x.numel() + kLine - 1) / kLine * kLine; };
  int64_t size = 0, first = 0;
  for (const auto& [name, parameter] : parameters_) size += lines(*parameter);
  if (size == 0) return;
  gradients_ = at::zeros({size}, parameters_[0].second->options()).detach();
  for (const auto& [name, parameter] : parameters_) {
    parameter->mutable_grad() = gradients_.narrow(0, first, parameter->numel()).view(parameter->sizes());
    first += lines(*parameter);
  }
}

void Optimiser::zero_gradients() { gradients_.zero_(); }

void Optimiser::sum_gradients(Group& group) {
  if (group.alone()) return;
  const Tensor here = gradients_.to(at::kCPU);
  group.sum({here.mutable_data_ptr<float>(), static_cast<size_t>(here.numel())});
  if (!here.is_same(gradients_)) gradients_.copy_(here);
}

Tensor Optimiser::gradient_norm() const {
  at::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(gradients())).norm();
}

void Optimiser::clip(double norm) {
  at::NoGradGuard no_grad;
  if (config_.clip > 0 && norm > config_.clip) at::_foreach_mul_(gradients(), config_.clip / (norm + 1e-6));
}

void Optimiser::step(double rate) {
  at::NoGradGuard no_grad;
  ++steps_;
  const auto w = values(), g = gradients();
  const auto place = w.at(0).options().dtype(at::kFloat);
  const std::vector<Tensor> steps(w.size(), at::full({}, static_cast<float>(steps_), place));
  if (config_.name == "adam") {
    at::_fused_adam_(w, g, slots_["exp_avg"], slots_["exp_avg_sq"], {}, steps, rate, config_.beta1, config_.beta2,
                     config_.weight_decay, config_.epsilon, false, false);
  } else if (config_.name == "adamw") {
    at::_fused_adamw_(w, g, slots_["exp_avg"], slots_["exp_avg_sq"], {}, steps, rate, config_.beta1, config_.beta2,
                      config_.weight_decay, config_.epsilon, false, false);
  } else if (config_.name == "sgd") {
    const bool first = steps_ == 1;
    at::_fused_sgd_(w, g, config_.momentum > 0 ? slots_["momentum"] : std::vector<Tensor>{}, config_.weight_decay,
                    config_.momentum, rate, 0, false, false, first);
  } else {
    if (config_.weight_decay > 0) at::_foreach_add_(g, w, config_.weight_decay);
    auto& square = slots_["square_avg"];
    at::_foreach_mul_(square, config_.smoothing);
    at::_foreach_addcmul_(square, g, g, 1 - config_.smoothing);
    auto root = at::_foreach_sqrt(square);
    at::_foreach_add_(root, config_.epsilon);
    at::_foreach_addcdiv_(w, g, root, -rate);
  }
}

}  // namespace lapse
