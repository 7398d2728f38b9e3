// ramp_attention: schema, checks, autograd and shape inference. The kernels are in the other files of this folder.
#include "lapse/ops/attention/ramp/ramp_attention.h"

#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/arguments.h"
#include "lapse/ops/attention/ramp/cpu.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

const auto& forward_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lapse::ramp_attention", "").typed<RampForward>();
  return op;
}

const auto& backward_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lapse::ramp_attention_backward", "").typed<RampBackward>();
  return op;
}

Tensor or_empty(const Optional& x, const Tensor& like) {
  return x ? at::empty_symint(x->sym_sizes(), x->options()) : like.new_empty({0});
}

RampTensors meta(LAPSE_RAMP_ARGUMENTS, bool received) {
  check_ramp_attention(LAPSE_RAMP_INPUTS, LAPSE_RAMP_OPTIONS(false));
  const auto B = q.sym_size(0), K = q.sym_size(1), H = q.sym_size(2), N = k.sym_size(0);
  const auto wide = q.options().dtype(at::toOpMathType(q.scalar_type()));
  return {at::empty_symint(q.sym_sizes(), q.options()), at::empty_symint({B}, wide),
          received ? at::empty_symint({N, H}, wide) : at::empty({0}, wide), at::empty_symint({B, K, H, 2}, wide)};
}

RampGradientTensors meta_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out,
                                  const Tensor& stats, LAPSE_RAMP_ARGUMENTS, const Optional& grad_lse) {
  check_ramp_attention_backward(grad_out, grad_ramp_sum, LAPSE_RAMP_INPUTS, LAPSE_RAMP_OPTIONS(false),
                                {out, {}, {}, stats}, grad_lse.value_or(Tensor()));
  return {at::empty_symint(q.sym_sizes(), q.options()),
          at::empty_symint(k.sym_sizes(), k.options()),
          at::empty_symint(v.sym_sizes(), v.options()),
          or_empty(row_span, q),
          or_empty(head_span, q),
          or_empty(position, q),
          or_empty(logit, q),
          or_empty(age_bias, q)};
}

class Function : public torch::autograd::Function<Function> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, LAPSE_RAMP_ARGUMENTS,
                                                bool received) {
    const InsideKernel inside;
    auto [out, ramp_sum, got, stats] = forward_operator().call(LAPSE_RAMP_VALUES, received);
    ctx->save_for_backward({q, k, v, offsets, start, time, row_span.value_or(Tensor()), head_span.value_or(Tensor()),
                            position.value_or(Tensor()), logit.value_or(Tensor()), seed.value_or(Tensor()),
                            until.value_or(Tensor()), age_bias.value_or(Tensor()), out, stats});
    ctx->saved_data["ramp"] = ramp;
    ctx->saved_data["min_age"] = min_age;
    ctx->saved_data["max_age"] = max_age;
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["bias_age"] = bias_age;
    ctx->saved_data["scale"] = scale;
    ctx->set_materialize_grads(false);
    // With spans the sum behind the statistic is not the one that normalises.
    ctx->mark_non_differentiable(row_span || head_span ? torch::autograd::variable_list{got, stats}
                                                       : torch::autograd::variable_list{got});
    return {out, ramp_sum, got, stats};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "ramp_attention: has no second derivatives (create_graph)");
    const auto s = ctx->get_saved_variables();
    auto optional = [&](size_t i) { return s[i].defined() ? Optional(s[i]) : std::nullopt; };
    const Tensor grad_out = grads[0].defined() ? grads[0] : at::zeros_like(s[13]);
    const Tensor grad_ramp_sum = grads[1].defined() ? grads[1] : at::zeros_symint({s[0].sym_size(0)}, s[14].options());
    const Optional grad_lse = grads[3].defined() ? Optional(grads[3].select(3, 0)) : std::nullopt;
    auto [dq, dk, dv, drow, dhead, dposition, dlogit, dbias] = backward_operator().call(
        grad_out, grad_ramp_sum, s[13], s[14], s[0], s[1], s[2], s[3], s[4], s[5], optional(6), optional(7),
        optional(8), optional(9), optional(10), ctx->saved_data["ramp"].toDouble(), ctx->saved_data["min_age"].toInt(),
        ctx->saved_data["max_age"].toInt(), ctx->saved_data["dropout"].toDouble(), optional(11), optional(12),
        ctx->saved_data["bias_age"].toInt(), ctx->saved_data["scale"].toOptional<double>(), grad_lse);
    auto given = [&](size_t i, const Tensor& gradient) { return s[i].defined() ? gradient : Tensor(); };
    const Tensor none;
    return {dq,
            dk,
            dv,
            none,
            none,
            none,
            given(6, drow),
            given(7, dhead),
            given(8, dposition),
            given(9, dlogit),
            none,
            none,
            none,
            none,
            none,
            none,
            given(12, dbias),
            none,
            none,
            none};
  }
};

RampTensors autograd(LAPSE_RAMP_ARGUMENTS, bool received) {
  auto r = Function::apply(LAPSE_RAMP_VALUES, received);
  return {r[0], r[1], r[2], r[3]};
}

#define LAPSE_RAMP_SCHEMA                                                                                 \
  "Tensor q, Tensor k, Tensor v, Tensor offsets, Tensor start, Tensor time, Tensor? row_span=None, "      \
  "Tensor? head_span=None, Tensor? position=None, Tensor? logit=None, Tensor? seed=None, float ramp=1., " \
  "int min_age=1, int max_age=9223372036854775807, float dropout=0., Tensor? until=None, "                \
  "Tensor? age_bias=None, int bias_age=0, float? scale=None"

}  // namespace

void check_ramp_attention(const AttentionInputs& x, const RampOptions& o) { check_attention("ramp_attention", x, o); }

void check_ramp_attention_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const AttentionInputs& x,
                                   const RampOptions& o, const RampOutputs& y, const Tensor& grad_lse) {
  check_ramp_attention(x, o);
  constexpr const char* op = "ramp_attention_backward";
  const auto B = x.q.sym_size(0), K = x.q.sym_size(1), H = x.q.sym_size(2), D = x.q.sym_size(3);
  check_shape(op, "grad_out", grad_out, {B, K, H, D});
  check_shape(op, "grad_ramp_sum", grad_ramp_sum, {B});
  check_shape(op, "out", y.out, {B, K, H, D});
  check_shape(op, "stats", y.stats, {B, K, H, 2});
  if (!grad_lse.defined()) return;
  check_shape(op, "grad_lse", grad_lse, {B, K, H});
  TORCH_CHECK(!o.row_span && !o.head_span, "ramp_attention_backward: grad_lse is for attention without spans");
}

TORCH_LIBRARY_FRAGMENT(lapse, m) {
  m.def("ramp_attention(" LAPSE_RAMP_SCHEMA ", bool received=False) -> (Tensor, Tensor, Tensor, Tensor)",
        {at::Tag::pt2_compliant_tag});
  m.def("ramp_attention_backward(Tensor grad_out, Tensor grad_ramp_sum, Tensor out, Tensor stats, " LAPSE_RAMP_SCHEMA
        ", Tensor? grad_lse=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(lapse, Meta, m) {
  m.impl("ramp_attention", meta);
  m.impl("ramp_attention_backward", meta_backward);
}
TORCH_LIBRARY_IMPL(lapse, Autograd, m) {
  m.impl("ramp_attention", autograd);
  m.impl("ramp_attention_backward", torch::autograd::autogradNotImplementedFallback());  // no second derivatives
}

#define LAPSE_RAMP_FIELDS                                                                                             \
  x.q, x.k, x.v, x.offsets, x.start, x.time, o.row_span, o.head_span, o.position, o.logit, o.seed, o.ramp, o.min_age, \
      o.max_age, o.dropout, x.until, o.age_bias, o.bias_age, o.scale

RampOutputs ramp_attention(const AttentionInputs& x, const RampOptions& o) {
  // Token by token, a way through the dispatcher with its many arguments is long beside the arithmetic.
  if (!at::GradMode::is_enabled() && ramp_attention_decodes(x, o)) {
    check_ramp_attention(x, o);
    check_attention_offsets("ramp_attention", x);
    return ramp_attention_decode(x, o);
  }
  auto [out, ramp_sum, received, stats] = forward_operator().call(LAPSE_RAMP_FIELDS, o.received);
  return {out, ramp_sum, received, stats};
}

RampGradients ramp_attention_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const AttentionInputs& x,
                                      const RampOptions& o, const RampOutputs& y, const Tensor& grad_lse) {
  auto [q, k, v, row, head, position, logit, bias] =
      backward_operator().call(grad_out, grad_ramp_sum, y.out, y.stats, LAPSE_RAMP_FIELDS,
                               grad_lse.defined() ? Optional(grad_lse) : std::nullopt);
  return {q, k, v, row, head, position, logit, bias};
}

}  // namespace lapse
