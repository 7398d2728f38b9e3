#include "lapse/ops/attention/ramp/cuda/ramp.h"

#include <bit>
#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/cuda/plan.h"
#include "lapse/ops/waiting.h"

namespace lapse::cuda {
namespace {

using at::Tensor;

constexpr double kLog2e = 1.4426950408889634;
constexpr int64_t kForEver = int64_t{1} << 62;

double scale_of(const AttentionInputs& x, const RampOptions& o) {
  return o.scale.value_or(1 / std::sqrt(static_cast<double>(x.q.size(3))));
}

/// What forward and backward share.
struct Call {
  const AttentionInputs& x;
  const RampOptions& o;
  int64_t B, K, H, G, N, width, D, P, A;
  bool spans;
  const char* more;  ///< which kernels: those of ".positions", of ".dropout" with them, of all ".extras"; or none
  std::string kind;
  Tensor q, k, v, position, by_age, logit, bias, seed;
  SeenRows seen;
  Arguments arguments;

  Call(const AttentionInputs& inputs, const RampOptions& options) : x(inputs), o(options) {
    B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), G = x.k.size(1), N = x.k.size(0), width = x.q.size(3);
    D = kernel_width(width), kind = kernel_kind(x.q, width);
    P = o.position ? o.position->size(0) : 0, A = o.age_bias ? o.age_bias->size(1) : 0;
    spans = o.row_span || o.head_span;
    more = o.logit || o.age_bias ? ".extras" : o.dropout > 0 ? ".dropout" : o.position ? ".positions" : "";
    q = widened(x.q, D), k = widened(x.k, D), v = widened(x.v, D);
    check_places(k);
    seen = plan_rows(x, o);
    if (P > 0) position = widened(o.position->to(q.scalar_type()), D);
    by_age = P > 0 ? at::matmul(q.view({-1, D}), position.t()) : q;
    logit = as_floats(o.logit, seen.spans), bias = as_floats(o.age_bias, seen.spans);
    seed = seed_on(o.seed, seen.count);
    arguments.set("q", q).set("k", k).set("v", v).set("packed", seen.packed).set("spans", seen.spans);
    arguments.set("by_age", by_age).set("logit", logit).set("bias", bias).set("seed", seed);
    arguments.set("offsets", seen.offsets).set("count", seen.count);
    arguments.set("N", seen.stride()).set("K", K).set("H", H).set("G", G);
    arguments.set("scale", scale_of(x, o) * kLog2e).set("ramp", o.ramp).set("epsilon", spans ? kRenormalisation : 0.0);
    arguments.set("span_row", seen.span_row).set("span_head", seen.span_head).set("P", P).set("A", A);
    arguments.set("has_logit", int64_t{o.logit.has_value()}).set("bias_age", o.bias_age);
    arguments.set("threshold", drop_threshold(o.dropout)).set("kept_scale", kept_scale(o.dropout));
  }
  Call(const Call&) = delete;  // arguments point into it

  /// "ramp_forward.bf16.64.spans"
  const Kernel& find(const std::string& name, bool variants = true) const {
    const char* which = !variants ? "" : *more != '\0' ? more : spans ? ".spans" : "";
    return Kernels::get().find(name + "." + kind + which);
  }
  Tensor zeros(at::IntArrayRef shape, at::ScalarType type = at::kFloat) const {
    return at::zeros(shape, q.options().dtype(type));
  }
  Tensor narrowed(const Tensor& y) const { return D == width ? y : y.narrow(-1, 0, width).contiguous(); }
};

bool decodes(const AttentionInputs& x, const RampOptions& o) { return few_queries(x) && o.dropout == 0 && !o.received; }

/// A few queries for each sample, in one launch.
RampOutputs decode(const AttentionInputs& x, const RampOptions& o) {
  const int64_t B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), G = x.k.size(1);
  const int64_t width = x.q.size(3), D = kernel_width(width), heads = H == G ? 1 : H / G <= 16 ? 16 : 32;
  const Kernel& kernel = Kernels::get().find("ramp_decode." + kernel_kind(x.q, width) + "." + std::to_string(heads));
  const auto [parts, part_rows] = few_parts(x, kernel.rows);
  const auto floats = x.q.options().dtype(at::kFloat);
  const Tensor q = widened(x.q, D), k = widened(x.k, D), v = widened(x.v, D);
  const Tensor offsets = sent(x.offsets, x.q.device());
  const Tensor start = aligned(x.start), time = aligned(x.time), until = x.until ? aligned(*x.until) : time;
  const Tensor absent = o.row_span || o.head_span ? Tensor() : at::full({1}, INFINITY, floats);
  const Tensor spans = o.row_span ? as_floats(o.row_span, absent) : as_floats(o.head_span, absent);
  const Tensor logit = as_floats(o.logit, spans), bias = as_floats(o.age_bias, spans);
  const Tensor position = o.position ? widened(o.position->to(q.scalar_type()), D) : q;
  const Tensor partial = at::empty({B, K, G, parts, heads * D + 3 * heads + 1}, floats);
  const Tensor arrived = at::zeros({B, K, G}, floats.dtype(at::kInt));
  RampOutputs y{at::empty(q.sizes(), q.options()), at::empty({B, K}, floats), at::empty({0}, floats),
                at::empty({B, K, H, 2}, floats)};
  Arguments a;
  a.set("q", q).set("k", k).set("v", v).set("offsets", offsets).set("start", start).set("time", time);
  a.set("until", until).set("spans", spans).set("position", position).set("logit", logit).set("bias", bias);
  a.set("partial", partial).set("arrived", arrived).set("out", y.out).set("ramp_sums", y.ramp_sum);
  a.set("stats", y.stats).set("K", K).set("H", H).set("G", G).set("part_rows", part_rows);
  a.set("scale", scale_of(x, o) * kLog2e).set("ramp", o.ramp).set("epsilon", absent.defined() ? 0.0 : kRenormalisation);
  a.set("min_age", std::max(o.min_age, -kForEver)).set("max_age", std::min(o.max_age, kForEver));
  a.set("has_until", int64_t{x.until.has_value()}).set("row_spans", int64_t{o.row_span.has_value()});
  a.set("span_row", int64_t{o.row_span.has_value()}).set("span_head", int64_t{o.head_span.has_value()});
  a.set("P", o.position ? o.position->size(0) : 0).set("has_logit", int64_t{o.logit.has_value()});
  a.set("A", o.age_bias ? o.age_bias->size(1) : 0).set("bias_age", o.bias_age);
  kernel.launch({parts, G, B * K}, a, q);
  y.ramp_sum = K == 1 ? y.ramp_sum.squeeze(1) : y.ramp_sum.sum(1);
  if (D != width) y.out = y.out.narrow(-1, 0, width).contiguous();
  return y;
}

}  // namespace

bool ramp_attention_takes(const AttentionInputs& x) {
  return x.q.numel() > 0 && x.k.numel() > 0 && !kernel_kind(x.q, x.q.size(3)).empty();
}

RampOutputs ramp_attention(const AttentionInputs& x, const RampOptions& o) {
  if (decodes(x, o)) return decode(x, o);
  Call c(x, o);
  const Kernel& forward = c.find("ramp_forward");
  RampOutputs y{at::empty(c.q.sizes(), c.q.options()), c.seen.ramp_sum, c.zeros({o.received ? c.N * c.H : 0}),
                at::empty({c.B, c.K, c.H, 2}, c.q.options().dtype(at::kFloat))};
  if (o.received) y.received = y.received.view({c.N, c.H});
  Tensor ranges = plan_ranges(c.seen, forward.rows);
  const Lists made = plan_lists(ranges, c.K, forward.queries);
  c.arguments.set("lists", made.lists).set("list_counts", made.counts).set("blocks", ranges.size(1));
  c.arguments.set("out", y.out).set("stats", y.stats);
  forward.launch({made.lists.size(1), c.H, c.B}, c.arguments, c.q);
  if (o.received) {
    const Kernel& received = Kernels::get().find("ramp_received." + c.kind + ".extras");
    ranges = plan_ranges(c.seen, received.rows);
    c.arguments.set("ranges", ranges).set("blocks", ranges.size(1)).set("received", y.received);
    received.launch({ranges.size(1), c.H, c.B}, c.arguments, c.q);
  }
  y.out = c.narrowed(y.out);
  return y;
}

RampGradients ramp_attention_backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const AttentionInputs& x,
                                      const RampOptions& o, const RampOutputs& y, const Tensor& grad_lse) {
  Call c(x, o);
  const auto type = c.q.scalar_type();
  const Tensor dout = widened(grad_out.to(type), c.D), out = widened(y.out, c.D), stats = as_floats(y.stats);
  const Tensor ramp_sum = as_floats(grad_ramp_sum);
  const Tensor sums = at::empty({2, c.B, c.H, c.K}, stats.options());
  const Tensor lse = grad_lse.defined() ? as_floats(grad_lse) : sums;
  Tensor dq = at::empty_like(c.q);
  const Tensor dk = of_rows(x, {c.G, c.D}, type), dv = of_rows(x, {c.G, c.D}, type);
  const int64_t lines = c.B * c.K * c.H;
  const Tensor dby_age = c.zeros({lines, c.P}, type), dbias = c.zeros({lines, c.A});

  const Kernel& queries = c.find("ramp_backward_queries");
  const Tensor query_ranges = plan_ranges(c.seen, queries.rows);
  const Lists made = plan_lists(query_ranges, c.K, queries.queries);
  c.arguments.set("lists", made.lists).set("list_counts", made.counts).set("blocks", query_ranges.size(1));
  c.arguments.set("out", out).set("stats", stats).set("grad_out", dout).set("grad_lse", lse).set("grad_q", dq);
  c.arguments.set("sums", sums).set("dby_age", dby_age).set("dbias", dbias);
  c.arguments.set("has_lse", int64_t{grad_lse.defined()});
  queries.launch({made.lists.size(1), c.H, c.B}, c.arguments, c.q);

  const Kernel& rows = c.find("ramp_backward_rows");
  const Tensor ranges = plan_ranges(c.seen, rows.rows);
  const Tensor dspan = of_rows(x, {c.spans || *c.more != '\0' ? c.H : 0}, at::kFloat);
  const Tensor dlogit = of_rows(x, {o.logit ? c.H : 0}, at::kFloat);
  c.arguments.set("ranges", ranges).set("blocks", ranges.size(1)).set("grad_ramp_sum", ramp_sum);
  c.arguments.set("grad_k", dk).set("grad_v", dv).set("grad_span", dspan).set("grad_logit", dlogit);
  rows.launch({ranges.size(1), c.G, c.B}, c.arguments, c.q);

  const auto absent = [&] { return x.q.new_empty({0}); };  // operators must not return one tensor twice
  const auto as = [&](const std::optional<Tensor>& input, const Tensor& gradient) {
    return input ? gradient.to(input->scalar_type()) : absent();
  };
  Tensor dposition = absent();
  if (o.position) {
    dq.add_(at::matmul(dby_age, c.P > 0 ? c.position : dby_age.new_empty({0, c.D})).view_as(dq), scale_of(x, o));
    dposition = c.narrowed(at::matmul(dby_age.t(), c.q.view({lines, c.D}))).mul_(scale_of(x, o));
  }
  return {c.narrowed(dq),
          c.narrowed(dk),
          c.narrowed(dv),
          as(o.row_span, dspan.sum(1)),
          as(o.head_span, dspan.sum(0)),
          as(o.position, dposition),
          as(o.logit, dlogit),
          as(o.age_bias, dbias.view({c.B * c.K, c.H, c.A}).sum(0))};
}

Tensor ramp_until(const Tensor& time, const Tensor& span, double ramp) {
  const Tensor times = aligned(time), spans = as_floats(span), until = at::empty(time.sizes(), time.options());
  Arguments a;
  a.set("time", times).set("span", spans).set("until", until).set("N", time.numel()).set("ramp", ramp);
  Kernels::get().find("rows_until").launch({blocks_of(time.numel(), kChunk)}, a, time);
  return until;
}

}  // namespace lapse::cuda
