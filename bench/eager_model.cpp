#include "bench/eager_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/eager.h"
#include "lapse/core/error.h"

namespace lapse::bench {
namespace {

using at::Tensor;

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, 1e-5);
}

}  // namespace

Tensor EagerLayer::spans(const Tensor& x, double max_span) const {
  return at::sigmoid(at::matmul(x, span_weight) + span_bias) * max_span;
}

Tensor EagerLayer::finish(const Tensor& h, const Tensor& read) const {
  const Tensor u = layer_norm(h + at::linear(read, out), norm1_weight, norm1_bias);
  const Tensor inner = at::relu(at::linear(u, ff1_weight, ff1_bias));
  return layer_norm(u + at::linear(inner, ff2_weight, ff2_bias), norm2_weight, norm2_bias);
}

EagerWeights::EagerWeights(const NamedTensors& parameters, int64_t layer_count) : layers(layer_count) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, parameter] : parameters) {
    copies[name] = parameter->detach().to(at::kFloat, false, /*copy=*/true).set_requires_grad(true);
    if (!of_spans(name)) trained.push_back(copies[name]);
  }
  auto named = [&](const std::string& name) {
    const auto found = copies.find(name);
    if (found == copies.end()) fail("the eager model needs a parameter " + name + ", which the library's has not");
    return found->second;
  };
  embedding = named("embedding"), position = named("position");
  output_weight = named("output.weight"), output_bias = named("output.bias");
  for (int64_t l = 0; l < layer_count; ++l) {
    auto own = [&](const char* name) { return named(fmt::format("layers.{}.{}", l, name)); };
    layers[l] = {own("query"),      own("key"),          own("value"),       own("out"),        own("norm1.weight"),
                 own("norm1.bias"), own("norm2.weight"), own("norm2.bias"),  own("ff1.weight"), own("ff1.bias"),
                 own("ff2.weight"), own("ff2.bias"),     own("span.weight"), own("span.bias")};
  }
}

EagerModel::EagerModel(const StepShape& shape, const NamedTensors& parameters)
    : shape_(shape),
      weights_(parameters, shape.layers),
      memory_(shape.layers, at::empty({shape.batch, 0, shape.width})) {
  for (const Tensor& parameter : weights_.trained) {
    exp_avg_.push_back(at::zeros_like(parameter).detach());
    exp_avg_sq_.push_back(at::zeros_like(parameter).detach());
  }
}

void EagerModel::fill() {
  for (Tensor& memory : memory_) memory = at::randn({shape_.batch, shape_.memory, shape_.width});
}

Tensor EagerModel::forward(size_t l, const Tensor& h, Tensor& cost) {
  const EagerLayer& layer = weights_.layers[l];
  const int64_t B = shape_.batch, K = shape_.block, H = shape_.heads, D = shape_.width / H;
  const Tensor all = at::cat({memory_[l], h}, 1);
  const int64_t n = all.size(1), keep = std::min(n, shape_.memory);
  const auto y = eager_attention(
      {at::linear(h, layer.query).view({B, K, H, D}), at::linear(all, layer.key).view({B, n, H, D}),
       at::linear(all, layer.value).view({B, n, H, D}), layer.spans(all, static_cast<double>(shape_.max_span)),
       weights_.position, static_cast<double>(shape_.ramp)});
  cost = cost + y.ramp_sum.mean() * (kSpanLoss / static_cast<double>(shape_.ramp * K));
  memory_[l] = all.detach().narrow(1, n - keep, keep);
  return layer.finish(h, y.out.reshape({B, K, H * D}));
}

double EagerModel::update(const Tensor& input, const Tensor& target) {
  for (Tensor& parameter : weights_.trained) parameter.mutable_grad().reset();
  Tensor h = at::embedding(weights_.embedding, input), cost = at::zeros({});
  for (size_t l = 0; l < weights_.layers.size(); ++l) h = forward(l, h, cost);
  const Tensor logits = at::linear(h, weights_.output_weight, weights_.output_bias);
  const Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), target.flatten());
  (loss + cost).backward();
  clip_and_step();
  return loss.item<double>();
}

void EagerModel::clip_and_step() {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> values, gradients;
  for (const Tensor& parameter : weights_.trained)
    values.push_back(parameter.detach()), gradients.push_back(parameter.grad());
  const Tensor norm = at::stack(at::_foreach_norm(gradients)).norm();
  at::_foreach_mul_(gradients, (kClip / (norm + 1e-6)).clamp_max(1).item());
  const std::vector<Tensor> steps(values.size(), at::full({}, static_cast<float>(++steps_), at::kFloat));
  at::_fused_adam_(values, gradients, exp_avg_, exp_avg_sq_, {}, steps, kRate, 0.9, 0.999, 0, 1e-8, false, false);
}

}  // namespace lapse::bench
