// ramp_attention on NVIDIA's GPUs, for libtorch's dispatcher: in a library of its own, loaded where a GPU is asked for.
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/arguments.h"
#include "lapse/ops/attention/ramp/cuda/ramp.h"
#include "lapse/ops/attention/ramp/until.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;

RampTensors forward(LAPSE_RAMP_ARGUMENTS, bool received) {
  const AttentionInputs x LAPSE_RAMP_INPUTS;
  const RampOptions o LAPSE_RAMP_OPTIONS(received);
  check_ramp_attention(x, o);
  check_attention_offsets("ramp_attention", x);
  const InsideKernel inside;
  const c10::OptionalDeviceGuard guard(q.device());
  auto y = cuda::ramp_attention_takes(x) ? cuda::ramp_attention(x, o) : ramp_attention_reference(x, o);
  return {y.out, y.ramp_sum, y.received, y.stats};
}

RampGradientTensors backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out,
                             const Tensor& stats, LAPSE_RAMP_ARGUMENTS, const std::optional<Tensor>& grad_lse) {
  const AttentionInputs x LAPSE_RAMP_INPUTS;
  const RampOptions o LAPSE_RAMP_OPTIONS(false);
  const RampOutputs y{out, {}, {}, stats};
  const Tensor lse = grad_lse.value_or(Tensor());
  check_ramp_attention_backward(grad_out, grad_ramp_sum, x, o, y, lse);
  check_attention_offsets("ramp_attention", x);
  const InsideKernel inside;
  const c10::OptionalDeviceGuard guard(q.device());
  auto g = cuda::ramp_attention_takes(x) ? cuda::ramp_attention_backward(grad_out, grad_ramp_sum, x, o, y, lse)
                                         : ramp_attention_backward_reference(grad_out, grad_ramp_sum, x, o, y, lse);
  return {g.q, g.k, g.v, g.row_span, g.head_span, g.position, g.logit, g.age_bias};
}

Tensor until(const Tensor& time, const Tensor& span, double ramp) {
  if (span.scalar_type() == at::kDouble || span.numel() == 0) return ramp_until_reference(time, span, ramp);
  check_ramp_until(time, span, ramp);
  const c10::OptionalDeviceGuard guard(span.device());
  return cuda::ramp_until(time, span, ramp);
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CUDA, m) {
  m.impl("ramp_attention", forward);
  m.impl("ramp_until", until);
  m.impl("ramp_attention_backward", backward);
}

}  // namespace lapse
