// What an agent's model says of a state: how likely each action is, and what the episode will still bring.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// How many actions an agent has. y: the outputs of agent_ends, [..., actions + 1]; the last is the value.
inline int64_t actions_of(const at::Tensor& y) { return y.size(-1) - 1; }

/// The outputs of agent_ends, apart.
struct Policy {
  at::Tensor logits;  ///< [..., actions]: pi = softmax
  at::Tensor value;   ///< [...]: V

  explicit Policy(const at::Tensor& y) : logits(y.narrow(-1, 0, actions_of(y))), value(y.select(-1, actions_of(y))) {}
};

}  // namespace lapse
