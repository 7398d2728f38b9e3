#include "lapse/nn/linear.h"

#include <cmath>

#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/linear.h"

namespace lapse {

Linear::Linear(int64_t out, int64_t in, bool biased, const std::string& initialisation, Random& random, double divisor)
    : weight(linear_weight(out, in, initialisation, random)) {
  if (biased) bias = uniform_parameter({out}, 1 / std::sqrt(static_cast<double>(in)), random);
  if (divisor == 1) return;
  weight.detach().div_(divisor);
  if (biased) bias.detach().div_(divisor);
}

at::Tensor Linear::operator()(const at::Tensor& x, bool bfloat16) const {
  return lapse::linear(x, weight, {.bias = bias, .bfloat16 = bfloat16});
}

void Linear::name(const std::string& name, NamedTensors& parameters, bool bare) {
  if (weight.defined()) parameters.emplace_back(bare ? name : name + ".weight", &weight);
  if (bias.defined()) parameters.emplace_back(name + ".bias", &bias);
}

}  // namespace lapse
