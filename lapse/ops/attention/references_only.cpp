// The attention operators without kernels for the CPU, where there is no Highway to compile them with: the references,
// so that a GPU's kernels have something to be compared with. Takes the place of ramp/cpu.cpp, selective/cpu.cpp and
// theirs.
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/arguments.h"
#include "lapse/ops/attention/ramp/cpu.h"
#include "lapse/ops/attention/selective/arguments.h"

namespace lapse {

bool ramp_attention_decodes(const AttentionInputs&, const RampOptions&) { return false; }
RampOutputs ramp_attention_decode(const AttentionInputs& x, const RampOptions& o) {
  return ramp_attention_reference(x, o);
}

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

RampTensors ramp(LAPSE_RAMP_ARGUMENTS, bool received) {
  auto y = ramp_attention_reference(LAPSE_RAMP_INPUTS, LAPSE_RAMP_OPTIONS(received));
  return {y.out, y.ramp_sum, y.received, y.stats};
}

RampGradientTensors ramp_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out,
                                  const Tensor& stats, LAPSE_RAMP_ARGUMENTS, const Optional& grad_lse) {
  auto g = ramp_attention_backward_reference(grad_out, grad_ramp_sum, LAPSE_RAMP_INPUTS, LAPSE_RAMP_OPTIONS(false),
                                             {out, {}, {}, stats}, grad_lse.value_or(Tensor()));
  return {g.q, g.k, g.v, g.row_span, g.head_span, g.position, g.logit, g.age_bias};
}

SelectiveTensors selective(LAPSE_SELECTIVE_ARGUMENTS) {
  auto y = selective_attention_reference(LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS);
  return {y.out, y.memory, y.masking, y.stats};
}

SelectiveGradientTensors selective_backward(const Tensor& grad_out, const Tensor& grad_memory, const Tensor& out,
                                            const Tensor& stats, LAPSE_SELECTIVE_ARGUMENTS) {
  auto g = selective_attention_backward_reference(grad_out, grad_memory, LAPSE_SELECTIVE_INPUTS,
                                                  LAPSE_SELECTIVE_OPTIONS, {out, {}, {}, stats});
  return {g.q, g.k, g.v, g.select_q, g.select_k, g.position, g.age_bias};
}

Tensor prune(LAPSE_SELECTIVE_ARGUMENTS, int64_t budget) {
  return selective_prune_reference(LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS, budget);
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CompositeExplicitAutograd, m) {
  m.impl("ramp_attention", ramp);
  m.impl("ramp_attention_backward", ramp_backward);
  m.impl("selective_attention", selective);
  m.impl("selective_attention_backward", selective_backward);
  m.impl("selective_prune", prune);
}

}  // namespace lapse
