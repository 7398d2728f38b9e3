#include "lapse/nn/norm.h"

#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/layer_norm.h"
#include "lapse/ops/dense/layer_passes.h"
#include "lapse/ops/dense/rms_norm.h"

namespace lapse {

Norm::Norm(int64_t features, const std::string& kind, double epsilon)
    : weight_(constant_parameter({features}, 1)), epsilon_(epsilon) {
  if (kind == "layer") bias_ = constant_parameter({features}, 0);
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (!weight_.defined()) return x;
  if (few_rows(x, kSomeRows)) return few(x, {});
  if (bias_.defined()) return lapse::layer_norm(x, {}, weight_, bias_, epsilon_);
  return lapse::rms_norm(x, weight_, epsilon_);
}

at::Tensor Norm::of_sum(const at::Tensor& x, const at::Tensor& more) const {
  if (weight_.defined() && few_rows(x, kSomeRows) && few_rows(more, kSomeRows)) return few(x, more);
  if (bias_.defined()) return lapse::layer_norm(x, more, weight_, bias_, epsilon_);
  return (*this)(x + more);
}

at::Tensor Norm::few(const at::Tensor& x, const at::Tensor& more) const {
  const int64_t n = weight_.size(0);
  TORCH_CHECK(x.size(-1) == n && (!more.defined() || more.sizes() == x.sizes()), "norm: x must be [..., ", n,
              "], and what is added like it; got ", x.sizes(), more.defined() ? " and " : "",
              more.defined() ? more.sizes() : at::IntArrayRef());
  at::Tensor y = empty_rows(x.sizes());
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  for (int64_t i = 0; i < x.numel(); i += n)
    normalise_sum(x.const_data_ptr<float>() + i, more.defined() ? more.const_data_ptr<float>() + i : nullptr,
                  weight_.const_data_ptr<float>(), bias, epsilon_, n, y.mutable_data_ptr<float>() + i);
  return y;
}

void Norm::name(const std::string& name, NamedTensors& parameters) {
  if (weight_.defined()) parameters.emplace_back(name + ".weight", &weight_);
  if (bias_.defined()) parameters.emplace_back(name + ".bias", &bias_);
}

}  // namespace lapse
