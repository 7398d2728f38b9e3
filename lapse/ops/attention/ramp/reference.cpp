// The formulas of ramp_attention.h, written out per sample as dense [H, K, n] tensors.
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/mix64.h"
#include "lapse/ops/waiting.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {
namespace {

using at::Tensor;

at::ScalarType compute_type(const Tensor& x) { return at::toOpMathType(x.scalar_type()); }

double scale_of(const RampOptions& o, const Tensor& q) {
  return o.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
}

/// One sample's share of the call: what forward and backward both need.
struct Sample {
  int64_t first, n;                 // its rows
  Tensor q, k, v;                   // [H, K, D], [H, n, D]: a key's head once for each of its queries' heads
  Tensor age;                       // [K, n] int64
  Tensor visible;                   // [K, n] bool
  Tensor sees;                      // [K] bool: anything visible
  Tensor mask, on_ramp;             // m and [0 < m < 1]: [K, n], with head spans [H, K, n]; undefined without spans
  Tensor remaining;                 // r = span - a, as mask
  Tensor position, position_index;  // [P + 1, D] with a zero row for "no age"; [K, near]
  int64_t near = 0;                 // the last rows, from the first that some query may see at an age <= P
  Tensor bias_index;                // [K n]: columns of age_bias; undefined without
  Tensor keep;                      // [H, K, n] dropout's factors; undefined without

  Sample(const AttentionInputs& x, const RampOptions& o, int64_t b) {
    const auto* offsets = x.offsets.const_data_ptr<int64_t>();
    first = offsets[b], n = offsets[b + 1] - offsets[b];
    const auto type = compute_type(x.q);
    q = x.q[b].transpose(0, 1).to(type);
    const int64_t K = q.size(1);
    const Tensor query_time = x.start[b] + at::arange(K, x.time.options());
    age = query_time.unsqueeze(1) - rows(x.time).unsqueeze(0);
    visible = at::logical_and(age >= o.min_age, age <= o.max_age);
    if (x.until) visible = at::logical_and(visible, query_time.unsqueeze(1) < rows(*x.until));
    if (o.row_span || o.head_span) add_mask(x, o, type);
    sees = visible.any(1);
    k = of_heads(x.k, type), v = of_heads(x.v, type);
    if (o.position) add_position(*o.position, type);
    if (o.age_bias) bias_index = (age - o.bias_age).clamp(0, o.age_bias->size(1) - 1).flatten();
    if (o.dropout > 0) add_dropout(o, x.q, b);
  }

  Tensor rows(const Tensor& x) const { return x.narrow(0, first, n); }
  /// Zeros for rows that no query sees: these may hold anything, NaN too.
  Tensor of_heads(const Tensor& x, at::ScalarType type) const {
    const int64_t H = q.size(0), G = x.size(1);
    const Tensor heads = at::where(visible.any(0).view({-1, 1}), rows(x).transpose(0, 1).to(type), 0);
    return G == H ? heads : heads.repeat_interleave(H / G, 0);
  }
  /// The sum over the heads that share a key: [H, n, D] as [n, G, D].
  static Tensor to_keys(const Tensor& x, int64_t G) {
    return (G == x.size(0) ? x : x.view({G, x.size(0) / G, x.size(1), x.size(2)}).sum(1)).transpose(0, 1);
  }

  void add_mask(const AttentionInputs& x, const RampOptions& o, at::ScalarType type) {
    Tensor span = o.row_span ? rows(*o.row_span).to(type) : o.head_span->to(type).view({-1, 1, 1});
    if (o.row_span) {  // nobody sees a row whose span is NaN
      const Tensor number = span.eq(span);
      span = at::where(number, span, -o.ramp);
      visible = at::logical_and(visible, number);
    }
    remaining = span - age;
    mask = (remaining / o.ramp + 1).clamp(0, 1);
    on_ramp = at::logical_and(at::logical_and(mask > 0, mask < 1), visible);
    if (o.row_span && !x.until) visible = at::logical_and(visible, mask > 0);
  }

  void add_position(const Tensor& table, at::ScalarType type) {
    const int64_t P = table.size(0);
    position = at::constant_pad_nd(table.to(type), {0, 0, 0, 1});
    const Tensor has = at::logical_and(at::logical_and(age >= 1, age <= P), visible);
    const Tensor columns = has.any(0).nonzero();
    near = columns.numel() == 0 ? 0 : n - columns[0].item<int64_t>();
    position_index = at::where(has, age - 1, P).narrow(1, n - near, near);
  }

  void add_dropout(const RampOptions& o, const Tensor& all_q, int64_t b) {
    const int64_t K = all_q.size(1), H = all_q.size(2);
    const auto integers = age.options();
    const Tensor query = (b * H + at::arange(H, integers)).unsqueeze(1) * K + at::arange(K, integers);
    const Tensor counter = query.unsqueeze(2) * (int64_t{1} << 32) + at::arange(first, first + n, integers);
    const Tensor bits =
        at::bitwise_right_shift(mix64(counter + mix64(sent(*o.seed, counter.device()))), 40);  // in -2^23 ... 2^23 - 1
    keep = ((bits + (1 << 23)).to(q.scalar_type()) >= o.dropout * (1 << 24)).to(q.scalar_type()) / (1 - o.dropout);
  }

  /// Logits of visible rows, -inf elsewhere; finite for a query that sees nothing. [H, K, n]
  Tensor logits(const RampOptions& o) const {
    const double scale = scale_of(o, q);
    const Tensor hidden = at::logical_and(at::logical_not(visible), sees.unsqueeze(1));
    const Tensor bias = at::zeros_like(age, q.options()).masked_fill_(hidden, -INFINITY);
    Tensor s = at::baddbmm(bias.expand({q.size(0), -1, -1}), q, k.transpose(1, 2), 1, scale);
    if (near > 0) {
      const Tensor by_age = at::matmul(q, position.t());
      s.narrow(2, n - near, near).add_(by_age.gather(2, position_index.expand({q.size(0), -1, -1})), scale);
    }
    // Of rows that no query sees it may be anything.
    if (o.logit) s.add_(at::where(visible, rows(*o.logit).to(s.scalar_type()).t().unsqueeze(1), 0));
    if (o.age_bias) s.add_(o.age_bias->to(s.scalar_type()).index_select(1, bias_index).view_as(s));
    return s;
  }

  /// a: softmax over the visible rows, 0 for a query that sees nothing.
  Tensor softmax(const Tensor& logits) const {
    Tensor a = at::softmax(logits, 2);
    if (!sees.all().item<bool>()) a.mul_(sees.unsqueeze(1));
    return a;
  }

  /// x [H, K, D] where the query sees something, else 0: also where rows that others see are not finite.
  Tensor where_seeing(const Tensor& x) const { return at::where(sees.view({-1, 1}), x, 0); }

  /// Log-sum-exp of the visible logits, from the largest one and its softmax: [H, K], -inf where nothing is visible.
  Tensor log_sum_exp(const Tensor& logits, const Tensor& a) const {
    return (logits.amax(2) - a.amax(2).log_()).masked_fill_(at::logical_not(sees), -INFINITY);
  }
};

/// Samples write to disjoint slices, so that on the CPU they may run on different threads with the same result. Another
/// device has streams of its own, one per thread.
template <class F>
void for_each_sample(const Tensor& q, const F& f) {
  const int64_t batch = q.size(0);
  at::parallel_for(0, batch, q.device().is_cpu() ? 1 : batch, [&](int64_t begin, int64_t end) {
    const InsideKernel inside;
    for (int64_t b = begin; b < end; ++b) f(b);
  });
}

}  // namespace

RampOutputs ramp_attention_reference(const AttentionInputs& x, const RampOptions& o) {
  check_ramp_attention(x, o);
  check_attention_offsets("ramp_attention", x);
  const InsideKernel inside;
  const int64_t B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), N = x.k.size(0);
  const auto wide = x.q.options().dtype(compute_type(x.q));
  RampOutputs y{at::zeros(x.q.sizes(), x.q.options()), at::zeros({B}, wide), at::zeros({o.received ? N * H : 0}, wide),
                at::zeros({B, K, H, 2}, wide)};
  if (o.received) y.received = y.received.view({N, H});
  for_each_sample(x.q, [&](int64_t b) {
    const Sample s(x, o, b);
    if (s.n == 0) {
      y.stats[b].select(2, 0).fill_(-INFINITY);
      return;
    }
    const Tensor logits = s.logits(o);
    Tensor a = s.softmax(logits);
    const Tensor lse = s.log_sum_exp(logits, a);
    Tensor Z = (lse > -INFINITY).to(lse.scalar_type());  // without spans: 1, or 0 where nothing is visible
    if (s.mask.defined()) {
      a.mul_(s.mask);
      Z = a.sum(2);
      a.div_((Z + kRenormalisation).unsqueeze(2));
      if (o.row_span) y.ramp_sum[b].copy_(at::where(s.on_ramp, s.remaining, 0).sum());
    }
    y.stats[b].select(2, 0).copy_(lse.t());
    y.stats[b].select(2, 1).copy_(Z.t());
    if (o.received) s.rows(y.received).copy_(a.sum(1).t());
    if (s.keep.defined()) a.mul_(s.keep);
    y.out[b].copy_(s.where_seeing(at::bmm(a, s.v)).transpose(0, 1));
  });
  return y;
}

RampGradients ramp_attention_backward_reference(const Tensor& grad_out, const Tensor& grad_ramp_sum,
                                                const AttentionInputs& x, const RampOptions& o, const RampOutputs& y,
                                                const Tensor& grad_lse) {
  check_ramp_attention_backward(grad_out, grad_ramp_sum, x, o, y, grad_lse);
  check_attention_offsets("ramp_attention", x);
  const InsideKernel inside;
  const int64_t B = x.q.size(0), H = x.q.size(2);
  const auto type = compute_type(x.q);
  const double scale = scale_of(o, x.q);
  const int64_t P = o.position ? o.position->size(0) : 0;
  auto zeros = [](const Tensor& like) { return at::zeros(like.sizes(), like.options()); };
  auto absent = [&] { return x.q.new_empty({0}); };  // one each: operators must not return a tensor twice
  RampGradients g{zeros(x.q),
                  zeros(x.k),
                  zeros(x.v),
                  o.row_span ? zeros(*o.row_span) : absent(),
                  absent(),
                  absent(),
                  o.logit ? zeros(*o.logit) : absent(),
                  absent()};
  // Shared by the samples, so summed over them afterwards.
  const auto wide = x.q.options().dtype(type);
  const Tensor head_span = at::zeros({B, o.head_span ? H : 0}, wide);
  const Tensor position = at::zeros({B, P, x.q.size(3)}, wide);
  const Tensor age_bias = at::zeros({B, H, o.age_bias ? o.age_bias->size(1) : 0}, wide);

  for_each_sample(x.q, [&](int64_t b) {
    const Sample s(x, o, b);
    if (s.n == 0) return;
    const Tensor Ze = (y.stats[b].select(2, 1).t() + kRenormalisation).unsqueeze(2);
    const Tensor a = s.softmax(s.logits(o));
    const Tensor dO = grad_out[b].transpose(0, 1).to(type);
    Tensor c = (dO * y.out[b].transpose(0, 1)).sum(2, true);                // sum_j a'_j da'_j, with dropout too
    if (grad_lse.defined()) c = c - grad_lse[b].t().unsqueeze(2).to(type);  // of the log-sum-exp: a_i

    Tensor applied = s.mask.defined() ? a * s.mask / Ze : a;  // a', then with dropout
    if (s.keep.defined()) applied = applied * s.keep;
    s.rows(g.v).copy_(s.to_keys(at::bmm(applied.transpose(1, 2), dO), x.v.size(1)));

    Tensor d = at::bmm(dO, s.v.transpose(1, 2));  // of dropout's output, then of a'
    if (s.keep.defined()) d.mul_(s.keep);
    d.sub_(c);
    if (s.mask.defined()) {
      d.div_(Ze);  // of w = m a
      const Tensor dspan = at::where(s.on_ramp, d * a, 0) / o.ramp;
      if (o.row_span) {
        const Tensor from_sum = s.on_ramp.sum(0).to(type) * grad_ramp_sum[b];
        s.rows(g.row_span).copy_(dspan.sum(at::IntArrayRef{0, 1}) + from_sum);
      } else {
        head_span[b].copy_(dspan.sum(at::IntArrayRef{1, 2}));
      }
      d.mul_(s.mask).sub_(c * kRenormalisation / Ze);  // of a, less sum_j a_j da_j
    }
    d.mul_(a);  // of the logits
    if (o.logit) s.rows(g.logit).copy_(d.sum(1).t());
    if (o.age_bias) age_bias[b].index_add_(1, s.bias_index, d.flatten(1));
    d.mul_(scale);
    s.rows(g.k).copy_(s.to_keys(at::bmm(d.transpose(1, 2), s.q), x.k.size(1)));
    Tensor dq = at::bmm(d, s.k);
    if (s.near > 0) {
      // Ages of visible rows differ, so that only the column for "no age", which is dropped, is written twice.
      Tensor by_age = at::zeros({H, dq.size(1), P + 1}, wide);
      by_age.scatter_(2, s.position_index.expand({H, -1, -1}), d.narrow(2, s.n - s.near, s.near));
      by_age = by_age.narrow(2, 0, P);
      dq.add_(at::matmul(by_age, s.position.narrow(0, 0, P)));
      position[b].copy_(at::matmul(by_age.reshape({-1, P}).t(), s.q.reshape({-1, s.q.size(2)})));
    }
    g.q[b].copy_(dq.transpose(0, 1));
  });
  if (o.head_span) g.head_span = head_span.sum(0).to(o.head_span->scalar_type());
  if (o.age_bias) g.age_bias = age_bias.sum(0).to(o.age_bias->scalar_type());
  if (o.position) g.position = position.sum(0).to(o.position->scalar_type());
  return g;
}

}  // namespace lapse
