#include "lapse/model/layer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lapse/nn/feed_forward.h"

namespace lapse {

using at::Tensor;

Tensor Residual::operator()(const Tensor& h, LayerPass& pass) const {
  const Tensor more = (*f)(h, pass);
  const Tensor same = h.dim() == 3 ? pass.options.at_places(h) : h;
  if (!more.defined()) return same;
  return after.defined() ? after.of_sum(same, more) : same + more;
}

Layer::Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, int64_t number,
             Random& random) {
  const bool pre = config.norm == "pre";
  const double divisor = pre ? std::sqrt(2.0 * config.layers) : 1;
  const auto norm = [&](bool there) { return there ? Norm(config.width, config.norm_kind) : Norm(); };
  auto attention = std::make_unique<Attention>(
      method, shape, number,
      AttentionOptions{.dropout = config.dropout, .initialisation = config.initialisation, .divisor = divisor},
      norm(pre), random);
  auto feed_forward = std::make_unique<FeedForward>(FeedForwardOptions{.width = config.width,
                                                                       .inner = config.inner_width(),
                                                                       .gated = config.activation == "swiglu",
                                                                       .biases = config.biases,
                                                                       .dropout = config.dropout,
                                                                       .initialisation = config.initialisation,
                                                                       .divisor = divisor},
                                                    norm(pre), random);
  attention_ = attention.get();
  FeedForward& second = *feed_forward;
  residuals_.push_back({std::move(attention), norm(!pre)});
  residuals_.push_back({std::move(feed_forward), norm(!pre)});
  attention_->name(parameters_);
  (pre ? attention_->before() : residuals_[0].after).name("norm1", parameters_);
  second.name(parameters_);
  (pre ? second.before() : residuals_[1].after).name("norm2", parameters_);
  for (auto& parameter : attention_->method().parameters()) parameters_.push_back(parameter);
}

NamedTensors Layer::parameters() { return parameters_; }

void Layer::to_bfloat16() {
  for (auto& residual : residuals_)
    for (Tensor* matrix : residual.f->matrices())
      if (matrix->defined()) *matrix = matrix->detach().to(at::kBFloat16);
}

Tensor Layer::operator()(const Tensor& h, LayerPass& pass) const {
  Tensor y = h;
  for (const auto& residual : residuals_) y = residual(y, pass);
  return y;
}

}  // namespace lapse
