#include "lapse/model/input.h"

#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/bag.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {
namespace {

using at::Tensor;

/// Lines `numbers` [...] of x [n, width], float32: [..., width]. For a few tokens libtorch's operators take longer.
Tensor lines_of(const Tensor& x, const Tensor& numbers) {
  c10::SmallVector<int64_t, 4> shape(numbers.sizes());
  const int64_t width = x.size(1);
  shape.push_back(width);
  Tensor y = empty_rows(shape);
  float* to = y.mutable_data_ptr<float>();
  for (int64_t i = 0; i < numbers.numel(); ++i)
    std::copy_n(x.const_data_ptr<float>() + numbers.const_data_ptr<int64_t>()[i] * width, width, to + i * width);
  return y;
}

class TokenInput : public Input {
 public:
  TokenInput(const ModelConfig& config, int64_t vocabulary, Random& random)
      : embedding_(std::make_shared<Tensor>(normal_parameter({vocabulary, config.width}, random))) {}

  void check(const Tensor& tokens) const override { require_tokens(tokens, embedding_->size(0)); }
  Tensor embed(const Tensor& tokens) const override {
    check(tokens);
    const Tensor& E = *embedding_;
    const bool few = tokens.is_cpu() && tokens.is_contiguous() && tokens.numel() <= kSomeRows;
    return few && few_rows(E, E.size(0)) ? lines_of(E, tokens) : at::embedding(E, tokens);
  }
  std::shared_ptr<Tensor> embedding() const override { return embedding_; }
  NamedTensors parameters() override { return {{"embedding", embedding_.get()}}; }

 private:
  std::shared_ptr<Tensor> embedding_;
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

  Tensor embed(const Tensor& bags) const override { return bag_sums(weight_, bags); }

  NamedTensors parameters() override { return {{"input.weight", &weight_}}; }

 private:
  Tensor weight_;  // [bits, width]: W^T
};

}  // namespace

void require_tokens(const Tensor& tokens, int64_t vocabulary) {
  if (!tokens.device().is_cpu() || tokens.numel() == 0) return;
  const Tensor all = tokens.contiguous();
  const auto* first = all.const_data_ptr<int64_t>();
  const auto [least, most] = std::minmax_element(first, first + all.numel());
  if (*least < 0 || *most >= vocabulary)
    fail(fmt::format("tokens must be 0 to {}, got {}", vocabulary - 1, *least < 0 ? *least : *most));
}

std::unique_ptr<Input> bag_input(const ModelConfig& config, int64_t bits, Random& random) {
  return std::make_unique<BagInput>(config, bits, random);
}

std::unique_ptr<Input> token_input(const ModelConfig& config, int64_t vocabulary, Random& random) {
  return std::make_unique<TokenInput>(config, vocabulary, random);
}

}  // namespace lapse
