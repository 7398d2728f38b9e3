#include "lapse/model/norm.h"

#include <ATen/ATen.h>

#include "lapse/model/initialise.h"

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
  return at::rms_norm(x, {x.size(-1)}, weight_, kEpsilon);
}

void Norm::name(const std::string& name, NamedTensors& parameters) {
  if (weight_.defined()) parameters.emplace_back(name + ".weight", &weight_);
  if (bias_.defined()) parameters.emplace_back(name + ".bias", &bias_);
}

}  // namespace lapse
