// Which kernel of selective_attention takes a call on the CPU; devices without kernels of their own run the reference.
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/few_queries.h"
#include "lapse/ops/attention/selective/arguments.h"
#include "lapse/ops/attention/selective/cpu.h"
#include "lapse/ops/attention/selective/selective_attention.h"
#include "lapse/ops/attention/work.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;

/// float64 is for checking numbers, not for speed.
bool tiled(const AttentionInputs& x, const SelectiveOptions& o) {
  const auto type = x.q.scalar_type();
  return x.q.device().is_cpu() && (type == at::kFloat || type == at::kBFloat16) && x.q.numel() > 0 &&
         (!o.select_q || o.select_q->dim() != 3 || o.select_q->size(2) > 0);  // of another shape: refused, later
}

bool decodes(const AttentionInputs& x, const SelectiveOptions& o) {
  return x.q.size(1) <= kFewQueries && o.dropout == 0;
}

SelectiveTensors forward(LAPSE_SELECTIVE_ARGUMENTS) {
  const AttentionInputs x LAPSE_SELECTIVE_INPUTS;
  const SelectiveOptions o LAPSE_SELECTIVE_OPTIONS;
  SelectiveOutputs y;
  if (!tiled(x, o)) {
    y = selective_attention_reference(x, o);
  } else {
    check_selective_attention(x, o);
    check_attention_offsets("selective_attention", x);
    const InsideKernel inside;
    y = decodes(x, o) ? selective_attention_decode(x, o) : selective_attention_tiled(x, o, computes_bfloat16(x));
  }
  return {y.out.to(q.scalar_type()), y.memory, y.masking, y.stats};
}

SelectiveGradientTensors backward(const Tensor& grad_out, const Tensor& grad_memory, const Tensor& out,
                                  const Tensor& stats, LAPSE_SELECTIVE_ARGUMENTS) {
  const AttentionInputs x LAPSE_SELECTIVE_INPUTS;
  const SelectiveOptions o LAPSE_SELECTIVE_OPTIONS;
  const SelectiveOutputs y{out, {}, {}, stats};
  SelectiveGradients g;
  if (!tiled(x, o)) {
    g = selective_attention_backward_reference(grad_out, grad_memory, x, o, y);
  } else {
    check_selective_attention_backward(grad_out, grad_memory, x, o, y);
    check_attention_offsets("selective_attention", x);
    const InsideKernel inside;
    g = selective_attention_backward_tiled(grad_out, grad_memory, x, o, y, computes_bfloat16(x));
  }
  auto as = [&](const Tensor& gradient, const std::optional<Tensor>& input) {
    return input ? gradient.to(input->scalar_type()) : q.new_empty({0});
  };
  return {as(g.q, q),
          as(g.k, k),
          as(g.v, v),
          as(g.select_q, select_q),
          as(g.select_k, select_k),
          as(g.position, position),
          as(g.age_bias, age_bias)};
}

Tensor prune(LAPSE_SELECTIVE_ARGUMENTS, int64_t budget) {
  const AttentionInputs x LAPSE_SELECTIVE_INPUTS;
  const SelectiveOptions o LAPSE_SELECTIVE_OPTIONS;
  if (!tiled(x, o)) return selective_prune_reference(x, o, budget);
  check_selective_prune(x, o, budget);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  return selective_prune_tiled(x, o, budget);
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CompositeExplicitAutograd, m) {
  m.impl("selective_attention", forward);
  m.impl("selective_attention_backward", backward);
  m.impl("selective_prune", prune);
}

}  // namespace lapse
