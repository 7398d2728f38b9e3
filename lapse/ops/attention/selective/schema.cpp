// selective_attention and selective_prune: schema, checks, autograd and shape inference. The kernels are in
// the other files of this folder.
#include "lapse/ops/attention/selective/selective_attention.h"

#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/arguments.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

const auto& forward_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lapse::selective_attention", "").typed<SelectiveForward>();
  return op;
}

const auto& backward_operator() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lapse::selective_attention_backward", "")
                             .typed<SelectiveBackward>();
  return op;
}

const auto& prune_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lapse::selective_prune", "").typed<SelectivePrune>();
  return op;
}

SelectiveTensors meta(LAPSE_SELECTIVE_ARGUMENTS) {
  check_selective_attention(LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS);
  const auto B = q.sym_size(0), K = q.sym_size(1), H = q.sym_size(2), N = k.sym_size(0);
  const auto wide = q.options().dtype(at::toOpMathType(q.scalar_type()));
  return {at::empty_symint(q.sym_sizes(), q.options()), at::empty_symint({B, K}, wide), at::empty_symint({N}, wide),
          at::empty_symint({B, K, H}, wide)};
}

SelectiveGradientTensors meta_backward(const Tensor& grad_out, const Tensor& grad_memory, const Tensor& out,
                                       const Tensor& stats, LAPSE_SELECTIVE_ARGUMENTS) {
  check_selective_attention_backward(grad_out, grad_memory, LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS,
                                     {out, {}, {}, stats});
  auto like = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  auto or_empty = [&](const Optional& x) { return x ? like(*x) : q.new_empty({0}); };
  return {like(q), like(k), like(v), or_empty(select_q), or_empty(select_k), or_empty(position), or_empty(age_bias)};
}

Tensor meta_prune(LAPSE_SELECTIVE_ARGUMENTS, int64_t budget) {
  check_selective_prune(LAPSE_SELECTIVE_INPUTS, LAPSE_SELECTIVE_OPTIONS, budget);
  return at::empty_symint(time.sym_sizes(), time.options());
}

class Function : public torch::autograd::Function<Function> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, LAPSE_SELECTIVE_ARGUMENTS) {
    const InsideKernel inside;
    auto [out, memory, after, stats] = forward_operator().call(LAPSE_SELECTIVE_VALUES);
    ctx->save_for_backward({q, k, v, offsets, start, time, masking.value_or(Tensor()), until.value_or(Tensor()),
                            select_q.value_or(Tensor()), select_k.value_or(Tensor()), position.value_or(Tensor()),
                            seed.value_or(Tensor()), first.value_or(Tensor()), age_bias.value_or(Tensor()), out,
                            stats});
    ctx->saved_data["max_age"] = max_age;
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["cap"] = cap;
    ctx->saved_data["bias_age"] = bias_age;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["shift"] = shift;
    ctx->saved_data["mask_first"] = mask_first;
    ctx->saved_data["mask_self"] = mask_self;
    ctx->saved_data["relu"] = relu;
    ctx->mark_non_differentiable({after, stats});
    return {out, memory, after, stats};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "selective_attention: has no second derivatives (create_graph)");
    const auto s = ctx->get_saved_variables();
    auto optional = [&](size_t i) { return s[i].defined() ? Optional(s[i]) : std::nullopt; };
    auto flag = [&](const char* name) { return ctx->saved_data[name].toBool(); };
    const Tensor grad_out = grads[0].defined() ? grads[0] : at::zeros_like(s[14]);
    const Tensor grad_memory =
        grads[1].defined() ? grads[1] : at::zeros_symint({s[0].sym_size(0), s[0].sym_size(1)}, s[15].options());
    auto [dq, dk, dv, dselect_q, dselect_k, dposition, dbias] = backward_operator().call(
        grad_out, grad_memory, s[14], s[15], s[0], s[1], s[2], s[3], s[4], s[5], optional(6), optional(7), optional(8),
        optional(9), optional(10), optional(11), ctx->saved_data["max_age"].toInt(),
        ctx->saved_data["dropout"].toDouble(), ctx->saved_data["cap"].toDouble(), flag("shift"), flag("mask_first"),
        flag("mask_self"), flag("relu"), optional(12), optional(13), ctx->saved_data["bias_age"].toInt(),
        ctx->saved_data["scale"].toOptional<double>());
    auto given = [&](size_t i, const Tensor& gradient) { return s[i].defined() ? gradient : Tensor(); };
    const Tensor none;
    return {dq,
            dk,
            dv,
            none,
            none,
            none,
            none,
            none,
            given(8, dselect_q),
            given(9, dselect_k),
            given(10, dposition),
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            given(13, dbias),
            none,
            none};
  }
};

SelectiveTensors autograd(LAPSE_SELECTIVE_ARGUMENTS) {
  auto r = Function::apply(LAPSE_SELECTIVE_VALUES);
  return {r[0], r[1], r[2], r[3]};
}

#define LAPSE_SELECTIVE_SCHEMA                                                                            \
  "Tensor q, Tensor k, Tensor v, Tensor offsets, Tensor start, Tensor time, Tensor? masking=None, "       \
  "Tensor? until=None, Tensor? select_q=None, Tensor? select_k=None, Tensor? position=None, "             \
  "Tensor? seed=None, int max_age=9223372036854775807, float dropout=0., float cap=1., bool shift=True, " \
  "bool mask_first=False, bool mask_self=False, bool relu=True, Tensor? first=None, "                     \
  "Tensor? age_bias=None, int bias_age=0, float? scale=None"

}  // namespace

TORCH_LIBRARY_FRAGMENT(lapse, m) {
  m.def("selective_attention(" LAPSE_SELECTIVE_SCHEMA ") -> (Tensor, Tensor, Tensor, Tensor)",
        {at::Tag::pt2_compliant_tag});
  m.def(
      "selective_attention_backward(Tensor grad_out, Tensor grad_memory, Tensor out, Tensor "
      "stats, " LAPSE_SELECTIVE_SCHEMA ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
  m.def("selective_prune(" LAPSE_SELECTIVE_SCHEMA ", *, int budget) -> Tensor", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(lapse, Meta, m) {
  m.impl("selective_attention", meta);
  m.impl("selective_attention_backward", meta_backward);
  m.impl("selective_prune", meta_prune);
}
TORCH_LIBRARY_IMPL(lapse, Autograd, m) {
  m.impl("selective_attention", autograd);
  m.impl("selective_attention_backward", torch::autograd::autogradNotImplementedFallback());  // no second derivatives
}

#define LAPSE_SELECTIVE_FIELDS                                                                                  \
  x.q, x.k, x.v, x.offsets, x.start, x.time, o.masking, x.until, o.select_q, o.select_k, o.position, o.seed,    \
      o.max_age, o.dropout, o.cap, o.shift, o.mask_first, o.mask_self, o.relu, o.first, o.age_bias, o.bias_age, \
      o.scale

SelectiveOutputs selective_attention(const AttentionInputs& x, const SelectiveOptions& o) {
  auto [out, memory, masking, stats] = forward_operator().call(LAPSE_SELECTIVE_FIELDS);
  return {out, memory, masking, stats};
}

SelectiveGradients selective_attention_backward(const Tensor& grad_out, const Tensor& grad_memory,
                                                const AttentionInputs& x, const SelectiveOptions& o,
                                                const SelectiveOutputs& y) {
  auto [q, k, v, select_q, select_k, position, bias] =
      backward_operator().call(grad_out, grad_memory, y.out, y.stats, LAPSE_SELECTIVE_FIELDS);
  return {q, k, v, select_q, select_k, position, bias};
}

Tensor selective_prune(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget) {
  return prune_operator().call(LAPSE_SELECTIVE_FIELDS, budget);
}

}  // namespace lapse
