#include "lapse/nn/feed_forward.h"

#include <ATen/ops/gelu.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/dropout.h"
#include "lapse/ops/dense/linear.h"
#include "lapse/ops/dense/swiglu.h"

namespace lapse {

using at::Tensor;

FeedForward::FeedForward(const FeedForwardOptions& o, Norm before, Random& random)
    : dropout_(o.dropout),
      gelu_(o.activation == "gelu"),
      before_(std::move(before)),
      first_(o.inner, o.width, o.biases, o.initialisation, random),
      second_(o.width, o.inner, o.biases, o.initialisation, random, o.divisor) {
  if (o.activation == "swiglu") gate_ = Linear(o.inner, o.width, false, o.initialisation, random);
}

Tensor FeedForward::operator()(const Tensor& h, LayerPass& pass) {
  if (pass.draws.dropped) return {};
  const bool bfloat16 = pass.options.bfloat16;
  const Tensor x = before_(h);
  std::optional<Dropout> dropout;
  if (dropout_ > 0 && pass.draws.seed) dropout = {dropout_, mix64(*pass.draws.seed)};
  if (!gate_.defined() && !gelu_) {
    const LinearOptions how{.bias = first_.bias, .relu = true, .dropout = dropout, .bfloat16 = bfloat16};
    return second_(lapse::linear(x, first_.weight, how), bfloat16);
  }
  Tensor inner;
  if (gate_.defined()) {
    const auto projected = lapse::linear(x, {gate_.weight, first_.weight}, {.bfloat16 = bfloat16});
    inner = swiglu(projected[0], first_.bias.defined() ? projected[1] + first_.bias : projected[1]);
  } else {
    inner = at::gelu(first_(x, bfloat16), "tanh");
  }
  return second_(dropout ? dropped(inner, *dropout) : inner, bfloat16);
}

void FeedForward::name(NamedTensors& parameters) {
  const auto add = [&](const char* name, Tensor& tensor) {
    if (tensor.defined()) parameters.emplace_back(name, &tensor);
  };
  add("ff1.weight", first_.weight), add("ff1.bias", first_.bias), add("ff.gate", gate_.weight);
  add("ff2.weight", second_.weight), add("ff2.bias", second_.bias);
}

}  // namespace lapse
