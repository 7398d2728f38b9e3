#include "bench/eager_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/eager.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

using at::Tensor;

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, 1e-5);
}

std::vector<Tensor> without_spans(const EagerWeights& weights) {
  std::vector<Tensor> some;
  for (const auto& [name, parameter] : weights.all)
    if (!of_spans(name)) some.push_back(parameter);
  return some;
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

Tensor EagerWeights::converted(const std::string& name, const Tensor& values) {
  const Tensor copy = values.detach().to(at::kFloat, false, /*copy=*/true);
  return name == "input.weight" ? at::constant_pad_nd(copy, {0, 0, 0, 1}).contiguous() : copy;
}

EagerWeights::EagerWeights(const NamedTensors& parameters, int64_t layer_count) : layers(layer_count) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, parameter] : parameters) {
    copies[name] = converted(name, *parameter).set_requires_grad(true);
    all.emplace_back(name, copies[name]);
  }
  auto named = [&](const std::string& name) {
    const auto found = copies.find(name);
    if (found == copies.end()) fail("the eager model needs a parameter " + name + ", which the library's has not");
    return found->second;
  };
  embedding = named(copies.contains("embedding") ? "embedding" : "input.weight"), position = named("position");
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
      optimiser_({.rate = kRate, .clip = kClip}, without_spans(weights_)),
      memory_(shape.layers, at::empty({shape.batch, 0, shape.width})) {}

void EagerModel::fill() {
  for (Tensor& memory : memory_) memory = at::randn({shape_.batch, shape_.memory, shape_.width});
}

Tensor EagerModel::forward(size_t l, const Tensor& h, Tensor& cost) {
  const EagerLayer& layer = weights_.layers[l];
  const int64_t B = shape_.batch, K = shape_.block, H = shape_.heads, D = shape_.width / H;
  const Tensor all = lapse::cat({memory_[l], h}, 1);
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
  optimiser_.zero_gradients();
  Tensor h = at::embedding(weights_.embedding, input), cost = at::zeros({});
  for (size_t l = 0; l < weights_.layers.size(); ++l) h = forward(l, h, cost);
  const Tensor logits = at::linear(h, weights_.output_weight, weights_.output_bias);
  const Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), target.flatten());
  (loss + cost).backward();
  optimiser_.clip_and_step();
  return loss.item<double>();
}

}  // namespace lapse::bench
