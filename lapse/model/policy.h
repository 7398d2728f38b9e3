// What an agent's model says of a state: how likely each action is, and what the episode will still bring.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// The outputs of agent_ends, apart.
struct Policy {
  at::Tensor logits;  ///< [..., actions]: pi = softmax
  at::Tensor value;   ///< [...]: V

  /// y: [..., actions + 1].
  explicit Policy(const at::Tensor& y) : logits(y.narrow(-1, 0, y.size(-1) - 1)), value(y.select(-1, y.size(-1) - 1)) {}
};

}  // namespace lapse
