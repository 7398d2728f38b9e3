#include "lapse/ops/attention/selective/cuda/selective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/cuda/plan.h"
#include "lapse/ops/waiting.h"

namespace lapse::cuda {
namespace {

using at::Tensor;

constexpr double kLog2e = 1.4426950408889634;
constexpr int64_t kFar = int64_t{1} << 30;  // FAR of rows.py
constexpr int64_t kForEver = int64_t{1} << 62;
constexpr int64_t kChoiceParts = 4;  // CHOICE_PARTS of call.py

int64_t width_of(const AttentionInputs& x, const SelectiveOptions& o) {
  return std::max(x.q.size(3), o.select_q ? o.select_q->size(2) : 0);
}

struct Call {
  const AttentionInputs& x;
  const SelectiveOptions& o;
  int64_t B, K, H, G, N, width, D, P, A, blocks, query_blocks;
  bool own, extras;
  std::string kind;
  double scale, select_scale;  // in natural units
  Tensor q, k, v, select_q, select_k, position, by_age, bias, kinds, seed, masking, ranges, prefix;
  SeenRows seen;
  Lists made;
  Arguments arguments;

  Call(const AttentionInputs& inputs, const SelectiveOptions& options) : x(inputs), o(options) {
    B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), G = x.k.size(1), N = x.k.size(0), width = x.q.size(3);
    D = kernel_width(width_of(x, o)), kind = kernel_kind(x.q, width_of(x, o)), own = o.select_q.has_value();
    P = o.position ? o.position->size(0) : 0, A = o.age_bias ? o.age_bias->size(1) : 0;
    extras = P > 0 || A > 0 || o.dropout > 0;
    q = widened(x.q, D), k = widened(x.k, D), v = widened(x.v, D);
    scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
    select_q = own ? widened(o.select_q->to(q.scalar_type()), D) : q;
    select_k = own ? widened(o.select_k->to(q.scalar_type()), D) : k;
    select_scale = own ? 1 / std::sqrt(static_cast<double>(o.select_q->size(2))) : scale;
    if (P > 0) position = widened(o.position->to(q.scalar_type()), D);
    by_age = P > 0 ? at::matmul(q.view({-1, D}), position.t()) : q;
    seen = plan_rows(x, core_options(o));
    bias = as_floats(o.age_bias, seen.spans), masking = as_floats(o.masking, seen.spans);
    kinds =
        o.first && !o.mask_first ? at::logical_not(*o.first).to(at::kInt) : at::ones({N}, q.options().dtype(at::kInt));
    seed = seed_on(o.seed, seen.count);
    const Kernel& sums = find("selective_sums");
    ranges = plan_ranges(seen, sums.rows, /*whole_age=*/1);
    blocks = ranges.size(1), query_blocks = (K + sums.queries - 1) / sums.queries;
    check_places(k);
    check_places(select_k);
    TORCH_CHECK((query_blocks + 1) * seen.stride() < int64_t{1} << 31, "selective_attention: ", N, " rows before ", K,
                " queries are too many for one call on a GPU; read shorter blocks");
    arguments.set("q", q).set("k", k).set("v", v).set("select_q", select_q).set("select_k", select_k);
    arguments.set("packed", seen.packed).set("by_age", by_age).set("logit", seen.spans).set("bias", bias);
    arguments.set("kinds", kinds).set("seed", seed).set("offsets", seen.offsets).set("count", seen.count);
    arguments.set("ranges", ranges).set("N", seen.stride()).set("K", K).set("H", H).set("G", G).set("blocks", blocks);
    arguments.set("select_stride_q", own ? D : H * D).set("select_stride_k", own ? D : G * D);
    arguments.set("select_scale", select_scale * kLog2e).set("own", int64_t{own});
    arguments.set("mask_self", int64_t{o.mask_self}).set("relu", int64_t{o.relu}).set("shift", int64_t{o.shift});
    arguments.set("P", P)
        .set("A", A)
        .set("bias_age", o.bias_age)
        .set("scale", scale * kLog2e)
        .set("cap", o.cap * kLog2e);
    arguments.set("threshold", drop_threshold(o.dropout)).set("kept_scale", kept_scale(o.dropout));
    arguments.set("masking", masking).set("has_masking", int64_t{o.masking.has_value()});
  }
  Call(const Call&) = delete;  // arguments point into it

  const Kernel& find(const std::string& name) const {
    return Kernels::get().find(name + "." + kind + (extras ? ".extras" : ""));
  }
  /// Of heads with keys of their own, and of up to 64 features, one that reads ahead.
  const Kernel& backward_rows() const {
    return extras || (H == G && D == 64) ? find("selective_backward_rows")
                                         : Kernels::get().find("selective_backward_rows." + kind + ".grouped");
  }
  Tensor zeros(at::IntArrayRef shape, at::ScalarType type = at::kFloat) const {
    return at::zeros(shape, q.options().dtype(type));
  }
  Tensor narrowed(const Tensor& y, int64_t to) const { return to == D ? y : y.narrow(-1, 0, to).contiguous(); }

  /// F at the beginning of each block of queries; returns F after the call.
  Tensor sum_masking() {
    prefix = at::empty({query_blocks + 1, seen.stride()}, q.options().dtype(at::kFloat));
    Tensor after = zeros({N});
    if (o.masking) {
      const auto* offsets = x.offsets.const_data_ptr<int64_t>();
      const int64_t first = offsets[0], rows = offsets[B] - first;
      after.narrow(0, first, rows).copy_(masking.narrow(0, first, rows));
    }
    arguments.set("prefix", prefix).set("received", after).set("queries_blocks", query_blocks);
    find("selective_sums").launch({blocks, query_blocks, B}, arguments, q);
    Kernels::get().find("selective_prefix").launch({blocks_of(seen.most, kChunk), B}, arguments, q);
    return after;
  }

  void list() {
    made = plan_lists(ranges, K, find("selective_forward").queries);
    arguments.set("lists", made.lists).set("list_counts", made.counts);
  }
};

/// A few queries for each sample, in one launch.
SelectiveOutputs decode(const AttentionInputs& x, const SelectiveOptions& o) {
  const int64_t B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), G = x.k.size(1);
  const int64_t width = x.q.size(3), D = kernel_width(width_of(x, o));
  const int64_t heads = H == G && K == 1 ? 1 : H / G <= 16 ? 16 : 32;
  const Kernel& kernel =
      Kernels::get().find("selective_decode." + kernel_kind(x.q, width_of(x, o)) + "." + std::to_string(heads));
  const auto [parts, part_rows] = few_parts(x, kernel.rows);
  const auto floats = x.q.options().dtype(at::kFloat);
  const auto type = x.q.scalar_type();
  const bool own = o.select_q.has_value(), spares = o.first && !o.mask_first;
  const Tensor q = widened(x.q, D), k = widened(x.k, D), v = widened(x.v, D);
  const Tensor select_q = own ? widened(o.select_q->to(type), D) : q;
  const Tensor select_k = own ? widened(o.select_k->to(type), D) : k;
  const Tensor offsets = sent(x.offsets, x.q.device());
  const Tensor start = aligned(x.start), time = aligned(x.time), until = x.until ? aligned(*x.until) : time;
  const Tensor first = spares ? aligned(*o.first).view(at::kByte) : at::empty({0}, floats.dtype(at::kByte));
  const Tensor partial = at::empty({B, K, G, parts, heads * D + 3 * heads + 1}, floats);
  const Tensor arrived = at::zeros({B, K, G}, floats.dtype(at::kInt));
  const Tensor masking = as_floats(o.masking, partial), bias = as_floats(o.age_bias, partial);
  const Tensor position = o.position ? widened(o.position->to(type), D) : q;
  SelectiveOutputs y{at::empty(q.sizes(), q.options()), at::empty({B, K}, floats), of_rows(x, {}, at::kFloat),
                     at::empty({B, K, H}, floats)};
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
  const double select_scale = own ? 1 / std::sqrt(static_cast<double>(o.select_q->size(2))) : scale;
  Arguments a;
  a.set("q", q).set("k", k).set("v", v).set("select_q", select_q).set("select_k", select_k).set("offsets", offsets);
  a.set("start", start).set("time", time).set("until", until).set("first", first).set("masking", masking);
  a.set("position", position).set("bias", bias).set("partial", partial).set("arrived", arrived).set("out", y.out);
  a.set("memory", y.memory).set("received", y.masking).set("stats", y.stats);
  a.set("K", K).set("H", H).set("G", G).set("part_rows", part_rows);
  a.set("select_stride_q", own ? D : H * D).set("select_stride_k", own ? D : G * D);
  a.set("select_scale", select_scale * kLog2e).set("own", int64_t{own}).set("mask_self", int64_t{o.mask_self});
  a.set("relu", int64_t{o.relu}).set("shift", int64_t{o.shift}).set("scale", scale * kLog2e).set("cap", o.cap * kLog2e);
  a.set("max_age", std::min(o.max_age, kForEver)).set("has_until", int64_t{x.until.has_value()});
  a.set("has_first", int64_t{spares}).set("has_masking", int64_t{o.masking.has_value()});
  a.set("P", o.position ? o.position->size(0) : 0).set("A", o.age_bias ? o.age_bias->size(1) : 0);
  a.set("bias_age", o.bias_age);
  kernel.launch({parts, G, B * K}, a, q);
  if (D != width) y.out = y.out.narrow(-1, 0, width).contiguous();
  return y;
}

}  // namespace

bool selective_attention_takes(const AttentionInputs& x, const SelectiveOptions& o) {
  return x.q.numel() > 0 && x.k.numel() > 0 && (!o.select_q || o.select_q->size(2) > 0) &&
         !kernel_kind(x.q, width_of(x, o)).empty();
}

SelectiveOutputs selective_attention(const AttentionInputs& x, const SelectiveOptions& o) {
  if (few_queries(x) && o.dropout == 0) return decode(x, o);
  Call c(x, o);
  const Tensor after = c.sum_masking();
  c.list();
  const Tensor out = at::empty_like(c.q), memory = c.zeros({c.B, c.K}), stats = c.zeros({c.B, c.K, c.H});
  c.arguments.set("out", out).set("memory", memory).set("stats", stats);
  const Kernel& forward = c.find("selective_forward");
  forward.launch({c.query_blocks, forward.groups(c.H), c.B}, c.arguments, c.q);
  return {c.narrowed(out, c.width), memory, after, stats};
}

SelectiveGradients selective_attention_backward(const Tensor& grad_out, const Tensor& grad_memory,
                                                const AttentionInputs& x, const SelectiveOptions& o,
                                                const SelectiveOutputs& y) {
  Call c(x, o);
  c.sum_masking();
  c.list();
  const auto type = c.q.scalar_type();
  const int64_t lines = c.B * c.K;
  const Tensor dout = widened(grad_out.to(type), c.D), out = widened(y.out, c.D);
  const Tensor stats = as_floats(y.stats), dmemory = as_floats(grad_memory);
  const Tensor sums = c.zeros({2, c.B, c.H, c.K});
  Tensor dq = at::empty_like(c.q), dk = at::zeros_like(c.k), dv = at::zeros_like(c.v);
  const Tensor dby_age = c.zeros({lines * c.H, c.P}, type), dbias = c.zeros({lines * c.H, c.A});
  auto& a = c.arguments;
  a.set("out", out).set("stats", stats).set("grad_out", dout).set("grad_memory", dmemory).set("sums", sums);
  a.set("grad_q", dq).set("grad_k", dk).set("grad_v", dv).set("dby_age", dby_age).set("dbias", dbias);
  Kernels::get().find("selective_dots." + c.kind).launch({c.query_blocks, c.H, c.B}, a, c.q);
  const Kernel &of_queries = c.find("selective_backward_queries"), &of_rows = c.backward_rows();
  of_queries.launch({c.query_blocks, of_queries.groups(c.H), c.B}, a, c.q);
  of_rows.launch({c.blocks, of_rows.groups(c.G), c.B}, a, c.q);

  const Tensor dprefix = at::empty({c.query_blocks, c.seen.stride()}, sums.options());
  const int64_t parts = c.extras ? 1 : kChoiceParts;
  const Tensor dselect_parts = c.zeros({parts, c.B, c.K, c.D}), dselect_k = c.zeros({c.N, c.D});
  const Tensor first_by_age = c.zeros({lines, c.P}, type), first_bias = c.zeros({lines, c.A});
  a.set("grad_prefix", dprefix).set("grad_select_q", dselect_parts).set("grad_select_k", dselect_k);
  a.set("dby_age", first_by_age).set("dbias", first_bias);
  c.find("selective_choice_rows").launch({c.blocks, 1, c.B}, a, c.q);
  c.find("selective_choice_queries").launch({c.query_blocks, parts, c.B}, a, c.q);
  const Tensor dselect_q = dselect_parts.sum(0);
  if (!c.own) {  // S comes from head 0
    dq.select(2, 0).add_(dselect_q);
    dk.select(1, 0).add_(dselect_k);
    dby_age.view({lines, c.H, c.P}).select(1, 0).add_(first_by_age);
    dbias.view({lines, c.H, c.A}).select(1, 0).add_(first_bias);
  }
  const auto absent = [&] { return x.q.new_empty({0}); };  // operators must not return one tensor twice
  const auto as = [&](const std::optional<Tensor>& input, const Tensor& gradient) {
    return input ? gradient.to(input->scalar_type()) : absent();
  };
  Tensor dposition = absent();
  if (o.position) {
    if (c.P > 0) dq.add_(at::matmul(dby_age, c.position).view_as(dq), c.scale);
    dposition = c.narrowed(at::matmul(dby_age.t(), c.q.view({-1, c.D})), c.width).mul_(c.scale);
  }
  const int64_t E = o.select_q ? o.select_q->size(2) : c.D;
  return {c.narrowed(dq, c.width),
          c.narrowed(dk, c.width),
          c.narrowed(dv, c.width),
          as(o.select_q, c.narrowed(dselect_q, E)),
          as(o.select_k, c.narrowed(dselect_k, E)),
          as(o.position, dposition),
          as(o.age_bias, dbias.view({lines, c.H, c.A}).sum(0))};
}

Tensor selective_prune(const AttentionInputs& x, const SelectiveOptions& options, int64_t budget) {
  SelectiveOptions o = options;
  o.dropout = 0;
  Call c(x, o);
  const Kernel& scoring = c.find("selective_scores");
  const Kernel& dropping = Kernels::get().find("selective_drop." + std::to_string(scoring.queries));
  const Tensor until =
      x.until ? x.until->clone(at::MemoryFormat::Contiguous) : at::full(x.time.sizes(), kNoLimit, x.time.options());
  const auto floats = c.q.options().dtype(at::kFloat), ints = floats.dtype(at::kInt);
  const Tensor spared = o.first ? aligned(o.first->to(at::kInt)) : at::zeros({c.N}, ints);
  const Tensor scores = at::empty({scoring.queries, c.seen.stride()}, floats), sums = c.zeros({c.seen.stride()});
  const Tensor ends = at::full({c.seen.stride()}, kFar, ints), start = aligned(x.start);
  auto& a = c.arguments;
  a.set("spared", spared).set("start", start).set("scores", scores).set("sums", sums).set("ends", ends);
  a.set("until", until).set("budget", std::min<int64_t>(budget, std::numeric_limits<int32_t>::max()));
  for (int64_t block = 0; block < c.query_blocks; ++block) {
    a.set("a", block);
    scoring.launch({c.blocks, 1, c.B}, a, c.q);
    dropping.launch({c.B}, a, c.q);
  }
  return until;
}

}  // namespace lapse::cuda
