#include "lapse/model/norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lapse/model/initialise.h"
#include "lapse/ops/vector.h"

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

at::Tensor Norm::operator()(const at::Tensor& x, const at::Tensor& more) const {
  // Token by token, libtorch's operators cost more than the arithmetic.
  const int64_t n = x.size(-1);
  const bool one = x.numel() == n && x.scalar_type() == at::kFloat && x.device().is_cpu() && x.is_contiguous() &&
                   more.scalar_type() == at::kFloat && more.is_contiguous() && more.sizes() == x.sizes();
  if (!one || !weight_.defined() || at::GradMode::is_enabled()) return (*this)(x + more);
  at::Tensor y = at::empty(x.sizes(), x.options());
  normalise_sum(x.const_data_ptr<float>(), more.const_data_ptr<float>(), weight_.const_data_ptr<float>(),
                bias_.defined() ? bias_.const_data_ptr<float>() : nullptr, kEpsilon, n, y.mutable_data_ptr<float>());
  return y;
}

void Norm::name(const std::string& name, NamedTensors& parameters) {
  if (weight_.defined()) parameters.emplace_back(name + ".weight", &weight_);
  if (bias_.defined()) parameters.emplace_back(name + ".bias", &bias_);
}

}  // namespace lapse
