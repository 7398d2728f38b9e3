#include "lapse/model/input.h"

#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/bag.h"

namespace lapse {
namespace {

using at::Tensor;

// Absolute positions start small beside the tokens' embeddings, which are N(0, 1).
constexpr double kPositionScale = 0.1;

class TokenInput : public Input {
 public:
  TokenInput(const ModelConfig& config, int64_t vocabulary, Random& random)
      : embedding_(std::make_shared<Tensor>(normal_parameter({vocabulary, config.width}, random))) {}

  Tensor embed(const Tensor& tokens, const Tensor&) const override { return at::embedding(*embedding_, tokens); }
  std::shared_ptr<Tensor> embedding() const override { return embedding_; }
  NamedTensors parameters() override { return {{"embedding", embedding_.get()}}; }

 private:
  std::shared_ptr<Tensor> embedding_;
};

class PositionedInput : public Input {
 public:
  PositionedInput(std::unique_ptr<Input> tokens, int64_t width, int64_t block, Random& random)
      : tokens_(std::move(tokens)), position_(normal_parameter({block, width}, random)) {
    position_.detach().mul_(kPositionScale);
  }

  Tensor embed(const Tensor& tokens, const Tensor& clock) const override {
    const Tensor h = tokens_->embed(tokens, clock);
    const Tensor times = clock.unsqueeze(1) + at::arange(tokens.size(1), clock.options());
    return h + at::embedding(position_, times);
  }

  int64_t context() const override { return position_.size(0); }
  std::shared_ptr<Bands> bands() const override { return tokens_->bands(); }
  std::shared_ptr<Tensor> embedding() const override { return tokens_->embedding(); }

  NamedTensors parameters() override {
    NamedTensors all = tokens_->parameters();
    all.emplace_back("position", &position_);
    return all;
  }

 private:
  std::unique_ptr<Input> tokens_;
  Tensor position_;
};

/// W x of the bits x that are set: the sum of those columns of W.
class BagInput : public Input {
 public:
  BagInput(const ModelConfig& config, int64_t bits, Random& random)
      : weight_(linear_weight(config.width, bits, config.initialisation, random)
                    .detach()
                    .t()
                    .contiguous()
                    .set_requires_grad(true)) {}

  Tensor embed(const Tensor& bags, const Tensor&) const override { return bag_sums(weight_, bags); }

  NamedTensors parameters() override { return {{"input.weight", &weight_}}; }

 private:
  Tensor weight_;  // [bits, width]: W^T
};

}  // namespace

std::unique_ptr<Input> bag_input(const ModelConfig& config, int64_t bits, Random& random) {
  return std::make_unique<BagInput>(config, bits, random);
}

std::unique_ptr<Input> token_input(const ModelConfig& config, int64_t vocabulary, Random& random) {
  return std::make_unique<TokenInput>(config, vocabulary, random);
}

std::unique_ptr<Input> positioned_input(std::unique_ptr<Input> tokens, int64_t width, int64_t block, Random& random) {
  return std::make_unique<PositionedInput>(std::move(tokens), width, block, random);
}

}  // namespace lapse
