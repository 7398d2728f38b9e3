// The loss of softmax, which keeps one matrix of the logits' size where libtorch's operators make three: of a large
// vocabulary these take more memory, and time, than the rest of a small model.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// -log softmax(logits)[target] of each row: [P], of logits [P, V] and targets [P] int64. Differentiable in the logits,
/// once. They are given away: the backward pass puts their gradient in their place. float32 on the CPU by
/// ops/dense/layer_passes.h; all else by at::cross_entropy_loss. c10::Error for shapes that do not fit, and on the
/// CPU for a target that is none of 0 ... V - 1.
at::Tensor cross_entropy(at::Tensor&& logits, const at::Tensor& target);

}  // namespace lapse
