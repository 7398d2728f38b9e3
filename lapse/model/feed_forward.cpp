#include "lapse/model/feed_forward.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lapse/model/initialise.h"
#include "lapse/ops/dropout.h"
#include "lapse/ops/few_rows.h"
#include "lapse/ops/layer_passes.h"
#include "lapse/ops/linear.h"
#include "lapse/ops/scratch.h"
#include "lapse/ops/swiglu.h"

namespace lapse {

using at::Tensor;

FeedForward::FeedForward(const ModelConfig& config, Random& random) {
  const int64_t w = config.width, inner = config.inner_width();
  weight1_ = linear_weight(inner, w, config.initialisation, random);
  if (config.biases) bias1_ = uniform_parameter({inner}, 1 / std::sqrt(static_cast<double>(w)), random);
  weight2_ = linear_weight(w, inner, config.initialisation, random);
  if (config.biases) bias2_ = uniform_parameter({w}, 1 / std::sqrt(static_cast<double>(inner)), random);
  if (config.activation == "swiglu") gate_ = linear_weight(inner, w, config.initialisation, random);
  if (config.norm == "pre")
    for (Tensor* x : {&weight2_, &bias2_})
      if (x->defined()) x->detach().div_(std::sqrt(2.0 * config.layers));
}

Tensor FeedForward::operator()(const Tensor& x, double dropout, uint64_t seed, bool bfloat16) const {
  Tensor inner;
  if (gate_.defined()) {
    const auto projected = lapse::linear(x, {gate_, weight1_}, {.bfloat16 = bfloat16});
    inner = swiglu(projected[0], bias1_.defined() ? projected[1] + bias1_ : projected[1]);
  } else {
    inner = lapse::linear(x, weight1_, {.bias = bias1_, .relu = true, .bfloat16 = bfloat16});
  }
  if (dropout > 0) inner = dropped(inner, dropout, seed);
  return lapse::linear(inner, weight2_, {.bias = bias2_, .bfloat16 = bfloat16});
}

void FeedForward::of_few(const float* x, int64_t m, float* y) const {
  const auto data = [](const Tensor& bias) { return bias.defined() ? bias.const_data_ptr<float>() : nullptr; };
  const int64_t width = weight1_.size(1), features = weight1_.size(0);
  Scratch& scratch = Scratch::of_thread();
  auto* inner = scratch.take<float>(m * features);
  if (gate_.defined()) {
    auto* gate = scratch.take<float>(m * features);
    multiply_few_rows(x, m, width, {{gate_, gate}, {weight1_, inner, data(bias1_)}});
    swiglu_pass(gate, inner, m * features, inner);
  } else {
    multiply_few_rows(x, m, width, {{weight1_, inner, data(bias1_)}}, /*relu=*/true);
  }
  multiply_few_rows(inner, m, features, {{weight2_, y, data(bias2_)}});
}

void FeedForward::name(NamedTensors& parameters) {
  const NamedTensors all = {{"ff1.weight", &weight1_},
                            {"ff1.bias", &bias1_},
                            {"ff.gate", &gate_},
                            {"ff2.weight", &weight2_},
                            {"ff2.bias", &bias2_}};
  for (const auto& parameter : all)
    if (parameter.second->defined()) parameters.push_back(parameter);
}

}  // namespace lapse
