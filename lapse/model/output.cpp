#include "lapse/model/output.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lapse/nn/initialise.h"
#include "lapse/ops/dense/linear.h"

namespace lapse {
namespace {

using at::Tensor;

class SoftmaxOutput : public Output {
 public:
  SoftmaxOutput(const ModelConfig& config, int64_t outputs, Random& random)
      : weight_(linear_weight(outputs, config.width, config.initialisation, random)) {
    if (config.biases) bias_ = uniform_parameter({outputs}, 1 / std::sqrt(static_cast<double>(config.width)), random);
  }

  Tensor logits(const Tensor& h, bool bfloat16) const override {
    return lapse::linear(h, weight_, {.bias = bias_, .bfloat16 = bfloat16});
  }

  double computed() const override { return static_cast<double>(weight_.size(0)); }

  NamedTensors parameters() override {
    NamedTensors all = {{"output.weight", &weight_}};
    if (bias_.defined()) all.emplace_back("output.bias", &bias_);
    return all;
  }

  void to_bfloat16() override { weight_ = weight_.detach().to(at::kBFloat16); }

 private:
  Tensor weight_, bias_;
};

}  // namespace

std::unique_ptr<Output> softmax_output(const ModelConfig& config, int64_t outputs, Random& random) {
  return std::make_unique<SoftmaxOutput>(config, outputs, random);
}

}  // namespace lapse
