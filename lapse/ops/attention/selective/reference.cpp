// The formulas of selective_attention.h, written out per sample as dense [H, K, n] tensors.
#include <ATen/OpMathType.h>

#include <cmath>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_attention.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;

/// One sample's share of the call. Times are [K, n] unless said otherwise.
struct Sample {
  int64_t first, n;           // its rows
  at::ScalarType type;        // computed in
  Tensor q, k, v;             // [H, K, D], [H, n, D]: a key's head once for each of its queries' heads
  Tensor select_q, select_k;  // [K, E], [n, E]; undefined where head 0 selects
  Tensor age, visible, maskable;
  Tensor position;    // [P + 1, D] with a zero row for "no age"
  Tensor line;        // of `position`
  double factor;      // of the logits
  Tensor bias_index;  // [K n]: columns of age_bias; undefined without
  Tensor keep;        // [H, K, n] dropout's factors; undefined without
  Tensor logits;      // [H, K, n] before masking
  Tensor choice;      // the logits that S comes from
  Tensor F, after;    // F, and [n] that for the query after the block

  Sample(const AttentionInputs& x, const SelectiveOptions& o, int64_t b) {
    const auto* offsets = x.offsets.const_data_ptr<int64_t>();
    first = offsets[b], n = offsets[b + 1] - offsets[b], type = at::toOpMathType(x.q.scalar_type());
    q = x.q[b].transpose(0, 1).to(type);
    const Tensor query_time = (x.start[b] + at::arange(q.size(1), x.time.options())).unsqueeze(1);
    age = query_time - rows(x.time);
    visible = at::logical_and(age >= 0, age <= o.max_age);
    if (x.until) visible = at::logical_and(visible, query_time < rows(*x.until));
    k = of_heads(x.k), v = of_heads(x.v);
    maskable = visible;
    if (o.first && !o.mask_first) maskable = at::logical_and(maskable, at::logical_not(rows(*o.first)));
    if (!o.mask_self) maskable = at::logical_and(maskable, age > 0);
    logits = at::matmul(q, k.transpose(1, 2));
    if (o.position) add_positions(*o.position);
    factor = o.scale.value_or(scale(q));
    logits = logits * factor;
    if (o.age_bias) {
      bias_index = (age - o.bias_age).clamp(0, o.age_bias->size(1) - 1).flatten();
      logits = logits + o.age_bias->to(type).index_select(1, bias_index).view_as(logits);
    }
    choice = o.select_q ? select(o, b) : logits[0];
    if (o.dropout > 0) add_dropout(o, x.q, b);
    sum_masking(o);
  }

  Tensor rows(const Tensor& x) const { return x.narrow(0, first, n); }
  /// Zeros for rows that no query sees: these may hold anything, NaN too.
  Tensor seen(const Tensor& x) const { return at::where(visible.any(0).view({-1, 1}), x, 0); }
  Tensor of_heads(const Tensor& x) const {
    const Tensor heads = seen(rows(x).transpose(0, 1).to(type));
    return heads.size(0) == q.size(0) ? heads : heads.repeat_interleave(q.size(0) / heads.size(0), 0);
  }
  /// The sum over the heads that share a key: [H, n, D] as [n, G, D].
  Tensor to_keys(const Tensor& x, int64_t G) const {
    return (G == x.size(0) ? x : x.view({G, x.size(0) / G, n, x.size(2)}).sum(1)).transpose(0, 1);
  }
  static double scale(const Tensor& x) { return 1 / std::sqrt(static_cast<double>(x.size(-1))); }

  void add_positions(const Tensor& table) {
    const int64_t P = table.size(0);
    position = at::constant_pad_nd(table.to(type), {0, 0, 0, 1});
    line = at::where(at::logical_and(age >= 1, age <= P), age - 1, P);
    logits = logits + at::matmul(q, position.t()).gather(2, line.expand({q.size(0), -1, -1}));
  }

  Tensor select(const SelectiveOptions& o, int64_t b) {
    select_q = (*o.select_q)[b].to(type), select_k = seen(rows(*o.select_k).to(type));
    return at::matmul(select_q, select_k.t()) * scale(select_q);
  }

  void sum_masking(const SelectiveOptions& o) {
    const Tensor before = o.masking ? rows(*o.masking).to(type) : at::zeros({n}, q.options());
    const Tensor S = at::where(maskable, o.relu ? choice.clamp_min(0) : choice, 0);
    const Tensor sums = lapse::cat({before.unsqueeze(0), S}).cumsum(0);  // line t: from the queries before t
    F = sums.narrow(0, o.shift ? 0 : 1, S.size(0));
    after = sums[S.size(0)];
  }

  void add_dropout(const SelectiveOptions& o, const Tensor& all_q, int64_t b) {
    const int64_t K = all_q.size(1), H = all_q.size(2);
    const uint64_t seed = mix64(static_cast<uint64_t>(o.seed->item<int64_t>()));
    const Tensor factors = at::empty({H, K, n}, at::kDouble);
    auto* factor = factors.mutable_data_ptr<double>();
    for (int64_t query = b * H * K; query < (b + 1) * H * K; ++query)  // heads, and queries within them
      for (int64_t row = first; row < first + n; ++row) {
        const uint64_t counter = (static_cast<uint64_t>(query) << 32) + static_cast<uint64_t>(row);
        const uint64_t bits = (mix64(counter + seed) ^ (uint64_t{1} << 63)) >> 40;
        *factor++ = static_cast<double>(bits) >= o.dropout * (1 << 24) ? 1 / (1 - o.dropout) : 0;
      }
    keep = factors.to(q.options());
  }

  /// softmax of logits - F over the visible rows, and [H, K] its log-sum-exp; 0 and -inf where nothing is visible.
  std::pair<Tensor, Tensor> attend() const {
    const Tensor masked = at::where(visible, logits - F, -INFINITY);
    const Tensor sees = visible.any(1);
    const Tensor a = at::softmax(at::where(sees.unsqueeze(1), masked, 0), 2) * sees.unsqueeze(1);
    return {a, at::logsumexp(masked, 2)};
  }
};

}  // namespace

SelectiveOutputs selective_attention_reference(const AttentionInputs& x, const SelectiveOptions& o) {
  check_selective_attention(x, o);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  const int64_t B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), N = x.k.size(0);
  const auto wide = x.q.options().dtype(at::toOpMathType(x.q.scalar_type()));
  SelectiveOutputs y{at::zeros(x.q.sizes(), x.q.options()), at::zeros({B, K}, wide), at::zeros({N}, wide),
                     at::full({B, K, H}, -INFINITY, wide)};
  for (int64_t b = 0; b < B; ++b) {
    const Sample s(x, o, b);
    if (s.n == 0) continue;
    auto [a, lse] = s.attend();
    y.stats[b].copy_(lse.t());
    y.memory[b].copy_(at::where(s.visible, 1 - s.F.clamp_max(o.cap) / o.cap, 0).sum(1));
    s.rows(y.masking).copy_(s.after);
    if (s.keep.defined()) a = a * s.keep;
    const Tensor sees = s.visible.any(1).view({-1, 1});  // else 0, also where rows that others see are not finite
    y.out[b].copy_(at::where(sees, at::matmul(a, s.v), 0).transpose(0, 1));
  }
  return y;
}

Tensor selective_masking(const AttentionInputs& inputs, const SelectiveOptions& options) {
  check_selective_attention(inputs, options);
  check_attention_offsets("selective_attention", inputs);
  AttentionInputs x = inputs;  // of head 0, which alone masks
  SelectiveOptions o = options;
  x.q = x.q.narrow(2, 0, 1), x.k = x.k.narrow(1, 0, 1), x.v = x.v.narrow(1, 0, 1);
  if (o.age_bias) o.age_bias = o.age_bias->narrow(0, 0, 1);
  o.dropout = 0;
  const InsideKernel inside;
  const int64_t B = x.q.size(0);
  std::vector<Tensor> all;
  for (int64_t b = 0; b < B; ++b) {
    const Sample s(x, o, b);
    TORCH_CHECK(s.n * B == x.k.size(0), "selective_masking: sample ", b, " has ", s.n, " of ", x.k.size(0), " rows");
    all.push_back(at::where(s.visible, s.F, 0));
  }
  return at::stack(all);
}

SelectiveGradients selective_attention_backward_reference(const Tensor& grad_out, const Tensor& grad_memory,
                                                          const AttentionInputs& x, const SelectiveOptions& o,
                                                          const SelectiveOutputs& y) {
  check_selective_attention_backward(grad_out, grad_memory, x, o, y);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  auto zeros = [](const Tensor& like) { return at::zeros(like.sizes(), like.options()); };
  auto absent = [&] { return x.q.new_empty({0}); };
  SelectiveGradients g{zeros(x.q), zeros(x.k), zeros(x.v), absent(), absent(), absent(), absent()};
  if (o.select_q) g.select_q = zeros(*o.select_q), g.select_k = zeros(*o.select_k);
  Tensor position;
  const auto wide = x.q.options().dtype(at::toOpMathType(x.q.scalar_type()));
  const Tensor age_bias = at::zeros({x.q.size(2), o.age_bias ? o.age_bias->size(1) : 0}, wide);
  for (int64_t b = 0; b < x.q.size(0); ++b) {
    const Sample s(x, o, b);
    if (s.n == 0) continue;
    const Tensor a = s.attend().first;
    const Tensor dO = grad_out[b].transpose(0, 1).to(s.type);
    s.rows(g.v).copy_(s.to_keys(at::matmul((s.keep.defined() ? a * s.keep : a).transpose(1, 2), dO), x.v.size(1)));

    Tensor d = at::matmul(dO, s.v.transpose(1, 2));  // of the weights
    if (s.keep.defined()) d = d * s.keep;
    d = a * (d - (dO * y.out[b].transpose(0, 1)).sum(2, true));  // of logits - F
    const Tensor counts = at::logical_and(s.visible, s.F < o.cap);
    const Tensor dF = at::where(counts, grad_memory[b].to(s.type).unsqueeze(1) / -o.cap, 0) - d.sum(0);
    // S_j is in F_t of all t > j; without the shift also of t = j.
    const Tensor later = lapse::cat({dF, at::zeros({1, s.n}, dF.options())}).flip(0).cumsum(0).flip(0);
    const Tensor open = o.relu ? at::logical_and(s.maskable, s.choice > 0) : s.maskable;
    const Tensor dchoice = at::where(open, later.narrow(0, o.shift ? 1 : 0, dF.size(0)), 0);
    if (o.select_q) {
      const Tensor scaled = dchoice * s.scale(s.select_q);
      g.select_q[b].copy_(at::matmul(scaled, s.select_k));
      s.rows(g.select_k).copy_(at::matmul(scaled.t(), s.select_q));
    } else {
      d[0] += dchoice;
    }

    if (o.age_bias) age_bias.index_add_(1, s.bias_index, d.flatten(1));
    d = d * s.factor;
    s.rows(g.k).copy_(s.to_keys(at::matmul(d.transpose(1, 2), s.q), x.k.size(1)));
    Tensor dq = at::matmul(d, s.k);
    if (o.position) {
      const int64_t P = o.position->size(0);
      const Tensor by_age = at::zeros({s.q.size(0), s.q.size(1), P + 1}, d.options())
                                .scatter_add_(2, s.line.expand({s.q.size(0), -1, -1}), d)
                                .narrow(2, 0, P);
      dq = dq + at::matmul(by_age, s.position.narrow(0, 0, P));
      const Tensor share = at::einsum("htp,htd->pd", {by_age, s.q});
      position = position.defined() ? position + share : share;
    }
    g.q[b].copy_(dq.transpose(0, 1));
  }
  if (o.age_bias) g.age_bias = age_bias.to(o.age_bias->scalar_type());
  if (o.position) g.position = position.defined() ? position.to(o.position->scalar_type()) : zeros(*o.position);
  return g;
}

Tensor selective_prune_reference(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget) {
  check_selective_prune(x, o, budget);
  check_attention_offsets("selective_attention", x);
  const InsideKernel inside;
  SelectiveOptions before = o;
  before.shift = true, before.dropout = 0;
  const auto on_cpu = at::TensorOptions(at::kLong).device(at::kCPU);  // where rows are looked through one by one
  const Tensor until = x.until ? x.until->to(on_cpu, false, /*copy=*/true, at::MemoryFormat::Contiguous)
                               : at::full(x.time.sizes(), std::numeric_limits<int64_t>::max(), on_cpu);
  for (int64_t b = 0; b < x.q.size(0); ++b) {
    const Sample s(x, before, b);
    const Tensor time = s.rows(x.time).to(on_cpu).contiguous();
    const Tensor first_row =
        o.first ? s.rows(*o.first).to(on_cpu.dtype(at::kBool)).contiguous() : at::zeros({s.n}, on_cpu.dtype(at::kBool));
    const auto* times = time.const_data_ptr<int64_t>();
    const auto* spared = first_row.const_data_ptr<bool>();
    auto* ends = until.mutable_data_ptr<int64_t>() + s.first;
    const int64_t start = x.start[b].item<int64_t>();
    for (int64_t t = 0; t < s.q.size(1); ++t) {
      const Tensor F = s.F[t].to(on_cpu.dtype(at::kDouble)).contiguous();
      const Tensor visible = s.visible[t].to(on_cpu.dtype(at::kBool)).contiguous();
      const auto* masking = F.const_data_ptr<double>();
      auto held = [&](int64_t i) { return visible.const_data_ptr<bool>()[i] && start + t < ends[i]; };
      auto goes_before = [&](int64_t i, int64_t j) {  // of rows, i the younger
        return masking[i] > masking[j] || (masking[i] == masking[j] && spared[j] && !spared[i]);
      };
      for (;;) {
        int64_t count = 0, first = -1;
        for (int64_t i = 0; i < s.n; ++i) {
          count += held(i);
          if (held(i) && times[i] != start + t && (first < 0 || goes_before(i, first))) first = i;
        }
        if (count <= budget || first < 0) break;
        ends[first] = start + t;
      }
    }
  }
  return until.to(x.time.device());
}

}  // namespace lapse
