#include "lapse/model/norm.h"

#include <ATen/ATen.h>

#include "lapse/model/initialise.h"
#include "lapse/ops/layer_passes.h"
#include "lapse/ops/rms_norm.h"

namespace lapse {

namespace {
constexpr double kEpsilon = 1e-5;
}

Norm::Norm(int64_t features, const std::string& kind) : weight_(constant_parameter({features}, 1)) {
  if (kind == "layer") bias_ = constant_parameter({features}, 0);
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (!weight_.defined()) return x;
  if (bias_.defined()) return at::layer_norm(x, {x.size(-1)}, weight_, bias_, kEpsilon);
  return lapse::rms_norm(x, weight_, kEpsilon);
}

void Norm::of_few(const float* x, const float* more, int64_t m, float* y) const {
  const int64_t n = weight_.size(0);
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  for (int64_t i = 0; i < m * n; i += n)
    normalise_sum(x + i, more == nullptr ? nullptr : more + i, weight_.const_data_ptr<float>(), bias, kEpsilon, n,
                  y + i);
}

void Norm::name(const std::string& name, NamedTensors& parameters) {
  if (weight_.defined()) parameters.emplace_back(name + ".weight", &weight_);
  if (bias_.defined()) parameters.emplace_back(name + ".bias", &bias_);
}

}  // namespace lapse
