#include "lapse/model/output.h"

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
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

class TiedOutput : public Output {
 public:
  explicit TiedOutput(std::shared_ptr<Tensor> embedding) : embedding_(std::move(embedding)) {}

  Tensor logits(const Tensor& h, bool bfloat16) const override {
    const Tensor& E = rounded_.defined() ? rounded_ : *embedding_;
    return lapse::linear(h * (1 / std::sqrt(static_cast<double>(E.size(1)))), E, {.bfloat16 = bfloat16});
  }

  double computed() const override { return static_cast<double>(embedding_->size(0)); }
  NamedTensors parameters() override { return {}; }
  void to_bfloat16() override { rounded_ = embedding_->detach().to(at::kBFloat16); }

 private:
  std::shared_ptr<Tensor> embedding_;
  Tensor rounded_;  // the same in bfloat16, to read with
};

}  // namespace

std::unique_ptr<Output> tied_output(const ModelConfig&, int64_t outputs, const Input& input, Random&) {
  auto embedding = input.embedding();
  if (!embedding || embedding->size(0) != outputs)
    fail(
        "model.output = \"tied\" shares the embedding of model.input = \"tokens\", for what is read and predicted "
        "alike");
  return std::make_unique<TiedOutput>(std::move(embedding));
}

std::unique_ptr<Output> softmax_output(const ModelConfig& config, int64_t outputs, Random& random) {
  return std::make_unique<SoftmaxOutput>(config, outputs, random);
}

}  // namespace lapse
