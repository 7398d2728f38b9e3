#include "lapse/model/layer.h"

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/dropout.h"

namespace lapse {

using at::Tensor;

namespace {

constexpr size_t kMostSublayers = 3;
constexpr uint64_t kFirstSite = 2;  // of a layer's draws: those before are sublayers' own

bool is_pre(const ModelConfig& config) { return config.norm == "pre"; }

Norm norm_if(bool there, const ModelConfig& config) {
  return there ? Norm(config.width, config.norm_kind, config.norm_epsilon) : Norm();
}

/// With pre-norm, what sublayers add at first is the smaller the more layers there are; not so T5's normal weights.
double divisor_of(const ModelConfig& config) {
  const bool smaller = is_pre(config) && config.initialisation != "normal";
  return smaller ? std::sqrt(2.0 * config.layers) : 1;
}

AttentionOptions attention_options(const ModelConfig& config) {
  return {.dropout = config.dropout, .initialisation = config.initialisation, .divisor = divisor_of(config)};
}

}  // namespace

Tensor Residual::operator()(const Tensor& h, LayerPass& pass) const {
  Tensor more = (*f)(h, pass);
  const Tensor same = h.dim() == 3 ? pass.options.at_places(h) : h;
  if (!more.defined()) return same;
  if (dropout > 0 && pass.draws.seed) more = dropped(more, {dropout, mix64(*pass.draws.seed + site)});
  return after.defined() ? after.of_sum(same, more) : same + more;
}

template <class F>
F& Layer::add(const ModelConfig& config, std::unique_ptr<F> f) {
  residuals_.reserve(kMostSublayers);  // parameters_ points to their norms
  F& added = *f;
  residuals_.push_back(
      {std::move(f), norm_if(!is_pre(config), config), config.residual_dropout, kFirstSite + residuals_.size()});
  return added;
}

template <class F>
void Layer::name_norm(const std::string& name, F& last) {
  Norm& after = residuals_.back().after;
  (after.defined() ? after : last.before()).name(name, parameters_);
}

void Layer::add_source(const ModelConfig& config, const std::string& prefix, const std::string& norm, Random& random) {
  source_ = &add(config, std::make_unique<SourceAttention>(shape_of(config, /*block=*/1), attention_options(config),
                                                           norm_if(is_pre(config), config), random));
  source_->name(prefix, parameters_);
  name_norm(norm, *source_);
}

void Layer::add_feed_forward(const ModelConfig& config, Random& random) {
  FeedForward& added =
      add(config, std::make_unique<FeedForward>(FeedForwardOptions{.width = config.width,
                                                                   .inner = config.inner_width(),
                                                                   .activation = config.activation,
                                                                   .biases = config.biases,
                                                                   .dropout = config.dropout,
                                                                   .initialisation = config.initialisation,
                                                                   .divisor = divisor_of(config)},
                                                norm_if(is_pre(config), config), random));
  added.name(parameters_);
  name_norm("norm2", added);
}

Layer::Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, int64_t number,
             Random& random) {
  attention_ = &add(config, std::make_unique<Attention>(method, shape, number, attention_options(config),
                                                        norm_if(is_pre(config), config), random));
  attention_->name(parameters_);
  name_norm("norm1", *attention_);
  if (config.encoder_layers > 0) add_source(config, "source.", "source.norm", random);
  add_feed_forward(config, random);
  for (auto& parameter : attention_->method().parameters()) parameters_.push_back(parameter);
}

Layer Layer::of_encoder(const ModelConfig& config, Random& random) {
  Layer layer;
  layer.add_source(config, "", "norm1", random);
  layer.add_feed_forward(config, random);
  return layer;
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
