// selective_attention on the CPU: which kernel takes a call.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "lapse/ops/selective_arguments.h"
#include "lapse/ops/selective_attention.h"

namespace lapse {
namespace {

using at::Tensor;

SelectiveTensors forward(LAPSE_SELECTIVE_ARGUMENTS) {
  auto y = selective_attention_reference(LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS);
  return {y.out, y.memory, y.masking, y.stats};
}

SelectiveGradientTensors backward(const Tensor& grad_out, const Tensor& grad_memory, const Tensor& out,
                                  const Tensor& stats, LAPSE_SELECTIVE_ARGUMENTS) {
  auto g = selective_attention_backward_reference(grad_out, grad_memory, LAPSE_SELECTIVE_INPUTS,
                                                  LAPSE_SELECTIVE_OPTIONS, {out, {}, {}, stats});
  return {g.q, g.k, g.v, g.select_q, g.select_k, g.position};
}

Tensor prune(LAPSE_SELECTIVE_ARGUMENTS, int64_t budget) {
  return selective_prune_reference(LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS, budget);
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CPU, m) {
  m.impl("selective_attention", forward);
  m.impl("selective_attention_backward", backward);
  m.impl("selective_prune", prune);
}

}  // namespace lapse
