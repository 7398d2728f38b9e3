// The beginning of a model: what the first layer reads of tokens, or of what else there is to read.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lapse/model/config.h"

namespace lapse {

class Bands;

class Input {
 public:
  virtual ~Input() = default;
  /// Of tokens [B, K] int64, or as the input has it [B, K, ...]: [B, K, width].
  virtual at::Tensor embed(const at::Tensor& tokens) const = 0;
  /// Error for tokens that `embed` cannot read, as far as the host can tell without waiting for a GPU.
  virtual void check(const at::Tensor& tokens) const { (void)tokens; }
  /// What an output may share with this input; null: nothing.
  virtual std::shared_ptr<Bands> bands() const { return nullptr; }
  /// Each token's vector [V, width], for an output that shares them; null: there is no such table.
  virtual std::shared_ptr<at::Tensor> embedding() const { return nullptr; }
  virtual NamedTensors parameters() = 0;
};

/// Error unless all tokens are 0 to vocabulary - 1. Nothing of tokens on a GPU, for which the host would wait.
void require_tokens(const at::Tensor& tokens, int64_t vocabulary);

/// An embedding of `vocabulary` kinds of tokens, N(0, 1).
std::unique_ptr<Input> token_input(const ModelConfig& config, int64_t vocabulary, Random& random);

/// A linear map of observations without bias: bags of up to W of `bits` bits, [B, K, W] int64, in any order, with -1
/// where there are fewer. No bit may be twice in a bag.
std::unique_ptr<Input> bag_input(const ModelConfig& config, int64_t bits, Random& random);

}  // namespace lapse
