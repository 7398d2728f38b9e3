// ramp_attention: schema, checks, autograd and shape inference. The kernels are in ramp_attention_*.cpp.
#include "lapse/ops/ramp_attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "lapse/ops/ramp_cpu.h"

namespace lapse {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;
using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// The dispatcher knows only flat argument lists; these two are the operators' signatures, once for all kernels.
#define LAPSE_RAMP_ARGUMENTS                                                                                         \
  const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &offsets, const Tensor &start, const Tensor &time, \
      const Optional &row_span, const Optional &head_span, const Optional &position, const Optional &logit,          \
      const Optional &seed, double ramp, int64_t min_age, int64_t max_age, double dropout, const Optional &until
#define LAPSE_RAMP_VALUES \
  q, k, v, offsets, start, time, row_span, head_span, position, logit, seed, ramp, min_age, max_age, dropout, until

using Forward = Outputs(LAPSE_RAMP_ARGUMENTS, bool received);
using Backward = Gradients(const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out, const Tensor& stats,
                           LAPSE_RAMP_ARGUMENTS, const Optional& grad_lse);

const auto& forward_operator() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lapse::ramp_attention", "").typed<Forward>();
  return op;
}

const auto& backward_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lapse::ramp_attention_backward", "").typed<Backward>();
  return op;
}

Tensor or_empty(const Optional& x, const Tensor& like) {
  return x ? at::empty_symint(x->sym_sizes(), x->options()) : like.new_empty({0});
}

Outputs meta(LAPSE_RAMP_ARGUMENTS, bool received) {
  check_ramp_attention({q, k, v, offsets, start, time, until},
                       {row_span, head_span, position, logit, seed, ramp, min_age, max_age, dropout});
  const auto B = q.sym_size(0), K = q.sym_size(1), H = q.sym_size(2), N = k.sym_size(0);
  const auto wide = q.options().dtype(at::toOpMathType(q.scalar_type()));
  return {at::empty_symint(q.sym_sizes(), q.options()), at::empty_symint({B}, wide),
          received ? at::empty_symint({N, H}, wide) : at::empty({0}, wide), at::empty_symint({B, K, H, 2}, wide)};
}

Gradients meta_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out, const Tensor& stats,
                        LAPSE_RAMP_ARGUMENTS, const Optional& grad_lse) {
  check_ramp_attention_backward(grad_out, grad_ramp_sum, {q, k, v, offsets, start, time, until},
                                {row_span, head_span, position, logit, seed, ramp, min_age, max_age, dropout},
                                {out, {}, {}, stats}, grad_lse.value_or(Tensor()));
  return {at::empty_symint(q.sym_sizes(), q.options()),
          at::empty_symint(k.sym_sizes(), k.options()),
          at::empty_symint(v.sym_sizes(), v.options()),
          or_empty(row_span, q),
          or_empty(head_span, q),
          or_empty(position, q),
          or_empty(logit, q)};
}

class Function : public torch::autograd::Function<Function> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, LAPSE_RAMP_ARGUMENTS,
                                                bool received) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, ramp_sum, got, stats] = forward_operator().call(LAPSE_RAMP_VALUES, received);
    ctx->save_for_backward({q, k, v, offsets, start, time, row_span.value_or(Tensor()), head_span.value_or(Tensor()),
                            position.value_or(Tensor()), logit.value_or(Tensor()), seed.value_or(Tensor()),
                            until.value_or(Tensor()), out, stats});
    ctx->saved_data["ramp"] = ramp;
    ctx->saved_data["min_age"] = min_age;
    ctx->saved_data["max_age"] = max_age;
    ctx->saved_data["dropout"] = dropout;
    ctx->set_materialize_grads(false);
    // With spans the sum behind the statistic is not the one that normalises.
    ctx->mark_non_differentiable(row_span || head_span ? torch::autograd::variable_list{got, stats}
                                                       : torch::autograd::variable_list{got});
    return {out, ramp_sum, got, stats};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto s = ctx->get_saved_variables();
    auto optional = [&](size_t i) { return s[i].defined() ? Optional(s[i]) : std::nullopt; };
    const Tensor grad_out = grads[0].defined() ? grads[0] : at::zeros_like(s[12]);
    const Tensor grad_ramp_sum = grads[1].defined() ? grads[1] : at::zeros_symint({s[0].sym_size(0)}, s[13].options());
    const Optional grad_lse = grads[3].defined() ? Optional(grads[3].select(3, 0)) : std::nullopt;
    auto [dq, dk, dv, drow, dhead, dposition, dlogit] = backward_operator().call(
        grad_out, grad_ramp_sum, s[12], s[13], s[0], s[1], s[2], s[3], s[4], s[5], optional(6), optional(7),
        optional(8), optional(9), optional(10), ctx->saved_data["ramp"].toDouble(), ctx->saved_data["min_age"].toInt(),
        ctx->saved_data["max_age"].toInt(), ctx->saved_data["dropout"].toDouble(), optional(11), grad_lse);
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
            none};
  }
};

Outputs autograd(LAPSE_RAMP_ARGUMENTS, bool received) {
  auto r = Function::apply(LAPSE_RAMP_VALUES, received);
  return {r[0], r[1], r[2], r[3]};
}

#define LAPSE_RAMP_SCHEMA                                                                                 \
  "Tensor q, Tensor k, Tensor v, Tensor offsets, Tensor start, Tensor time, Tensor? row_span=None, "      \
  "Tensor? head_span=None, Tensor? position=None, Tensor? logit=None, Tensor? seed=None, float ramp=1., " \
  "int min_age=1, int max_age=9223372036854775807, float dropout=0., Tensor? until=None"

}  // namespace

void check_ramp_attention(const RampInputs& x, const RampOptions& o) {
  const auto& [q, k, v, offsets, start, time, until] = x;
  TORCH_CHECK(q.dim() == 4, "ramp_attention: q must be [B, K, H, D], got ", q.sizes());
  const auto B = q.sym_size(0), H = q.sym_size(2), D = q.sym_size(3);
  TORCH_CHECK(k.dim() == 3 && k.sym_size(1) == H && k.sym_size(2) == D, "ramp_attention: k must be [N, H, D] = [N, ", H,
              ", ", D, "], got ", k.sym_sizes());
  TORCH_CHECK(v.sym_sizes() == k.sym_sizes(), "ramp_attention: v must have the shape of k, got ", v.sym_sizes());
  const auto N = k.sym_size(0);
  TORCH_CHECK(
      at::isFloatingType(q.scalar_type()) && k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(),
      "ramp_attention: q, k, v must share one floating dtype");
  auto integers = [](const Tensor& t, const c10::SymInt& n, const char* name) {
    TORCH_CHECK(t.dim() == 1 && t.sym_size(0) == n && t.scalar_type() == at::kLong, "ramp_attention: ", name,
                " must be int64 of ", n, " elements, got ", t.scalar_type(), " ", t.sym_sizes());
  };
  integers(offsets, B + 1, "offsets");
  integers(start, B, "start");
  integers(time, N, "time");
  if (until) integers(*until, N, "until");
  auto floats = [&](const Optional& t, c10::SymIntArrayRef shape, const char* name) {
    if (!t) return;
    TORCH_CHECK(t->sym_sizes() == shape && at::isFloatingType(t->scalar_type()), "ramp_attention: ", name,
                " must be floating of shape ", shape, ", got ", t->scalar_type(), " ", t->sym_sizes());
  };
  floats(o.row_span, {N}, "row_span");
  floats(o.head_span, {H}, "head_span");
  if (o.position) {
    TORCH_CHECK(o.position->dim() == 2, "ramp_attention: position must be [P, D], got ", o.position->sym_sizes());
    floats(o.position, {o.position->sym_size(0), D}, "position");
  }
  floats(o.logit, {N, H}, "logit");
  TORCH_CHECK(!(o.row_span && o.head_span), "ramp_attention: give row_span or head_span, not both");
  TORCH_CHECK(o.ramp > 0, "ramp_attention: ramp must be positive, got ", o.ramp);
  TORCH_CHECK(o.min_age >= 0 && o.max_age >= o.min_age, "ramp_attention: need 0 <= min_age <= max_age");
  TORCH_CHECK(o.dropout >= 0 && o.dropout < 1, "ramp_attention: dropout must be in [0, 1), got ", o.dropout);
  TORCH_CHECK(o.dropout == 0 || (o.seed && o.seed->numel() == 1 && o.seed->scalar_type() == at::kLong),
              "ramp_attention: dropout needs a seed, an int64 tensor of one element");
}

void check_ramp_attention_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const RampInputs& x,
                                   const RampOptions& o, const RampOutputs& y, const Tensor& grad_lse) {
  check_ramp_attention(x, o);
  const auto B = x.q.sym_size(0), K = x.q.sym_size(1), H = x.q.sym_size(2), D = x.q.sym_size(3);
  auto shaped = [](const Tensor& t, c10::SymIntArrayRef shape, const char* name) {
    TORCH_CHECK(t.sym_sizes() == shape, "ramp_attention_backward: ", name, " must be ", shape, ", got ", t.sym_sizes());
  };
  shaped(grad_out, {B, K, H, D}, "grad_out");
  shaped(grad_ramp_sum, {B}, "grad_ramp_sum");
  shaped(y.out, {B, K, H, D}, "out");
  shaped(y.stats, {B, K, H, 2}, "stats");
  if (!grad_lse.defined()) return;
  shaped(grad_lse, {B, K, H}, "grad_lse");
  TORCH_CHECK(!o.row_span && !o.head_span, "ramp_attention_backward: grad_lse is for attention without spans");
}

void check_ramp_attention_offsets(const RampInputs& x) {
  const Tensor offsets = x.offsets;
  TORCH_CHECK(offsets.device().is_cpu() && offsets.is_contiguous(),
              "ramp_attention: offsets must be contiguous on the CPU");
  const auto* o = offsets.const_data_ptr<int64_t>();
  const int64_t B = x.q.size(0);
  TORCH_CHECK(o[0] >= 0 && o[B] <= x.k.size(0), "ramp_attention: offsets must lie in 0 ... ", x.k.size(0));
  for (int64_t b = 0; b < B; ++b) TORCH_CHECK(o[b] <= o[b + 1], "ramp_attention: offsets must not decrease");
}

TORCH_LIBRARY_FRAGMENT(lapse, m) {
  m.def("ramp_attention(" LAPSE_RAMP_SCHEMA ", bool received=False) -> (Tensor, Tensor, Tensor, Tensor)",
        {at::Tag::pt2_compliant_tag});
  m.def("ramp_attention_backward(Tensor grad_out, Tensor grad_ramp_sum, Tensor out, Tensor stats, " LAPSE_RAMP_SCHEMA
        ", Tensor? grad_lse=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(lapse, Meta, m) {
  m.impl("ramp_attention", meta);
  m.impl("ramp_attention_backward", meta_backward);
}
TORCH_LIBRARY_IMPL(lapse, Autograd, m) { m.impl("ramp_attention", autograd); }

RampOutputs ramp_attention(const RampInputs& x, const RampOptions& o) {
  // Token by token, a way through the dispatcher with its many arguments is long beside the arithmetic.
  if (!at::GradMode::is_enabled() && ramp_attention_decodes(x, o)) {
    check_ramp_attention(x, o);
    check_ramp_attention_offsets(x);
    return ramp_attention_decode(x, o);
  }
  auto [out, ramp_sum, received, stats] =
      forward_operator().call(x.q, x.k, x.v, x.offsets, x.start, x.time, o.row_span, o.head_span, o.position, o.logit,
                              o.seed, o.ramp, o.min_age, o.max_age, o.dropout, x.until, o.received);
  return {out, ramp_sum, received, stats};
}

RampGradients ramp_attention_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const RampInputs& x,
                                      const RampOptions& o, const RampOutputs& y, const Tensor& grad_lse) {
  auto [q, k, v, row, head, position, logit] =
      backward_operator().call(grad_out, grad_ramp_sum, y.out, y.stats, x.q, x.k, x.v, x.offsets, x.start, x.time,
                               o.row_span, o.head_span, o.position, o.logit, o.seed, o.ramp, o.min_age, o.max_age,
                               o.dropout, x.until, grad_lse.defined() ? Optional(grad_lse) : std::nullopt);
  return {q, k, v, row, head, position, logit};
}

}  // namespace lapse
