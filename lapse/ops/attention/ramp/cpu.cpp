// Which kernel of ramp_attention takes a call on the CPU; devices without kernels of their own run the reference.
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/expiry.h"
#include "lapse/ops/attention/ramp/arguments.h"
#include "lapse/ops/attention/ramp/cpu.h"
#include "lapse/ops/attention/work.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// float64 is for checking numbers, not for speed.
bool tiled(const AttentionInputs& x) {
  const auto type = x.q.scalar_type();
  return x.q.device().is_cpu() && (type == at::kFloat || type == at::kBFloat16) && x.q.numel() > 0;
}

Tensor as(const Tensor& x, const Optional& like) { return like ? x.to(like->scalar_type()) : x; }

RampTensors forward(LAPSE_RAMP_ARGUMENTS, bool received) {
  const AttentionInputs x LAPSE_RAMP_INPUTS;
  const RampOptions o LAPSE_RAMP_OPTIONS(received);
  if (!tiled(x)) {
    auto y = ramp_attention_reference(x, o);
    return {y.out, y.ramp_sum, y.received, y.stats};
  }
  check_ramp_attention(x, o);
  check_attention_offsets("ramp_attention", x);
  const InsideKernel inside;
  if (ramp_attention_decodes(x, o)) {
    auto y = ramp_attention_decode(x, o);
    return {y.out, y.ramp_sum, y.received, y.stats};
  }
  auto y = ramp_attention_tiled(x, o, computes_bfloat16(x));
  return {y.out.to(q.scalar_type()), y.ramp_sum, y.received, y.stats};
}

RampGradientTensors backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out,
                             const Tensor& stats, LAPSE_RAMP_ARGUMENTS, const Optional& grad_lse) {
  const AttentionInputs x LAPSE_RAMP_INPUTS;
  const RampOptions o LAPSE_RAMP_OPTIONS(false);
  const RampOutputs y{out, {}, {}, stats};
  const Tensor lse = grad_lse.value_or(Tensor());
  if (!tiled(x)) {
    auto g = ramp_attention_backward_reference(grad_out, grad_ramp_sum, x, o, y, lse);
    return {g.q, g.k, g.v, g.row_span, g.head_span, g.position, g.logit, g.age_bias};
  }
  check_ramp_attention_backward(grad_out, grad_ramp_sum, x, o, y, lse);
  check_attention_offsets("ramp_attention", x);
  const InsideKernel inside;
  auto g = ramp_attention_backward_tiled(grad_out, grad_ramp_sum, x, o, y, lse, computes_bfloat16(x));
  const auto type = q.scalar_type();
  auto given = [&](const Tensor& gradient, const Optional& input) {
    return input ? as(gradient, input) : q.new_empty({0});
  };
  return {g.q.to(type),
          g.k.to(type),
          g.v.to(type),
          given(g.row_span, row_span),
          given(g.head_span, head_span),
          given(g.position, position),
          given(g.logit, logit),
          given(g.age_bias, age_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CompositeExplicitAutograd, m) {
  m.impl("ramp_attention", forward);
  m.impl("ramp_attention_backward", backward);
}

TORCH_LIBRARY_IMPL(lapse, CPU, m) {
  m.impl("ramp_until", static_cast<Tensor (*)(const Tensor&, const Tensor&, double)>(ramp_until));
}

}  // namespace lapse
