// selective_attention on NVIDIA's GPUs, for libtorch's dispatcher; in the library that is loaded where one is asked
// for.
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/arguments.h"
#include "lapse/ops/attention/selective/cuda/selective.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;

SelectiveTensors forward(LAPSE_SELECTIVE_ARGUMENTS) {
  const AttentionInputs x LAPSE_SELECTIVE_INPUTS;
  const SelectiveOptions o LAPSE_SELECTIVE_OPTIONS;
  check_selective_attention(x, o);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  const c10::OptionalDeviceGuard guard(q.device());
  auto y =
      cuda::selective_attention_takes(x, o) ? cuda::selective_attention(x, o) : selective_attention_reference(x, o);
  return {y.out, y.memory, y.masking, y.stats};
}

SelectiveGradientTensors backward(const Tensor& grad_out, const Tensor& grad_memory, const Tensor& out,
                                  const Tensor& stats, LAPSE_SELECTIVE_ARGUMENTS) {
  const AttentionInputs x LAPSE_SELECTIVE_INPUTS;
  const SelectiveOptions o LAPSE_SELECTIVE_OPTIONS;
  const SelectiveOutputs y{out, {}, {}, stats};
  check_selective_attention_backward(grad_out, grad_memory, x, o, y);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  const c10::OptionalDeviceGuard guard(q.device());
  auto g = cuda::selective_attention_takes(x, o)
               ? cuda::selective_attention_backward(grad_out, grad_memory, x, o, y)
               : selective_attention_backward_reference(grad_out, grad_memory, x, o, y);
  return {g.q, g.k, g.v, g.select_q, g.select_k, g.position, g.age_bias};
}

Tensor prune(LAPSE_SELECTIVE_ARGUMENTS, int64_t budget) {
  const AttentionInputs x LAPSE_SELECTIVE_INPUTS;
  const SelectiveOptions o LAPSE_SELECTIVE_OPTIONS;
  check_selective_prune(x, o, budget);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  const c10::OptionalDeviceGuard guard(q.device());
  return cuda::selective_attention_takes(x, o) ? cuda::selective_prune(x, o, budget)
                                               : selective_prune_reference(x, o, budget);
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CUDA, m) {
  m.impl("selective_attention", forward);
  m.impl("selective_attention_backward", backward);
  m.impl("selective_prune", prune);
}

}  // namespace lapse
