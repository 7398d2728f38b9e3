// What the tests of selective_attention share: random ragged inputs, and its formulas query by query, differentiated by
// libtorch's autograd.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/attention/selective/selective_attention.h"

namespace lapse {

struct SelectiveCase {
  AttentionInputs inputs;
  SelectiveOptions options;
  std::string text;  ///< for messages
};

struct SelectiveSizes {
  std::vector<int64_t> samples, queries, heads, dims, rows;
};

inline int64_t pick_of(Random& random, const std::vector<int64_t>& values) {
  return values[random.below(values.size())];
}

/// Everything drawn at random, the presence of options too. What lies in spare rows is NaN.
inline SelectiveCase random_selective_case(uint64_t seed, const SelectiveSizes& sizes) {
  Random random(seed, "selective_attention case");
  const int64_t B = pick_of(random, sizes.samples), K = pick_of(random, sizes.queries);
  const int64_t H = pick_of(random, sizes.heads), D = pick_of(random, sizes.dims);
  std::vector<int64_t> offsets = {0}, start, times;
  for (int64_t b = 0; b < B; ++b) {
    // Half the samples are streams from their first token on.
    const int64_t rows = pick_of(random, sizes.rows);
    if (random.below(2)) {
      start.push_back(std::max<int64_t>(rows - K, 0));
      for (int64_t i = 0; i < rows; ++i) times.push_back(i);
    } else {
      start.push_back(static_cast<int64_t>(random.below(1000)));
      add_times(times, rows, start.back() + K - 1, K, random);
    }
    offsets.push_back(static_cast<int64_t>(times.size()));
  }
  const int64_t used = offsets.back(), N = used + pick<int64_t>(random, {0, 3});
  times.resize(N, -1000);
  auto rows_of = [&](at::Tensor x) {
    x.narrow(0, used, N - used).fill_(NAN);
    return x;
  };
  SelectiveCase c;
  c.inputs = {random_normal({B, K, H, D}, random),
              rows_of(random_normal({N, H, D}, random)),
              rows_of(random_normal({N, H, D}, random)),
              at::tensor(offsets, at::kLong),
              at::tensor(start, at::kLong),
              at::tensor(times, at::kLong)};
  auto& o = c.options;
  if (random.below(2)) o.masking = rows_of(random_normal({N}, random).abs());
  if (random.below(3) == 0) draw_until(c.inputs, random);
  if (random.below(3) > 0) {
    // The first row of a stream, and some of documents within.
    o.first = c.inputs.time == 0;
    if (random.below(2))
      for (int64_t i = 0; i < used; ++i) o.first->data_ptr<bool>()[i] |= random.below(8) == 0;
  }
  if (random.below(3) == 0) {
    const auto E = pick<int64_t>(random, {1, 5, 16, 64});
    o.select_q = random_normal({B, K, E}, random), o.select_k = rows_of(random_normal({N, E}, random));
  }
  if (random.below(2)) o.position = random_normal({pick<int64_t>(random, {1, 3, 20, 64, 200}), D}, random);
  if (random.below(3) == 0) o.max_age = static_cast<int64_t>(random.below(100));
  if (random.below(3) == 0) o.dropout = 0.25, o.seed = at::full({1}, static_cast<int64_t>(seed), at::kLong);
  o.cap = pick(random, {0.5, 1., 3.});
  o.shift = random.below(4) > 0;
  o.mask_first = random.below(4) == 0;
  o.mask_self = random.below(4) == 0;
  o.relu = random.below(5) > 0;
  draw_extras(c.inputs, o, random);
  draw_strides(o.position, random);
  draw_lead(c.inputs, {&o.masking, &o.first, &o.select_k}, random);
  c.text = "seed " + std::to_string(seed) + ": B " + std::to_string(B) + ", K " + std::to_string(K) + ", H " +
           std::to_string(H) + ", D " + std::to_string(D) + ", N " + std::to_string(N) +
           (o.select_q ? ", select" : "") + (o.position ? ", position" : "") + (c.inputs.until ? ", until" : "") +
           (o.dropout > 0 ? ", dropout" : "") + (o.age_bias ? ", bias" : "") + (o.scale ? ", scale" : "") +
           (o.shift ? "" : ", no shift") + (o.relu ? "" : ", no relu");
  return c;
}

inline SelectiveCase small_selective_case(uint64_t seed) {
  return random_selective_case(seed, {{1, 2, 3}, {1, 2, 5, 13, 37}, {1, 2, 3, 4}, {1, 3, 8, 17}, {0, 1, 11, 40, 70}});
}

/// The floating inputs in another precision.
inline SelectiveCase converted(const SelectiveCase& c, at::ScalarType type) {
  SelectiveCase y = c;
  for (at::Tensor* x : {&y.inputs.q, &y.inputs.k, &y.inputs.v}) *x = x->to(type);
  for (auto* x : {&y.options.select_q, &y.options.select_k, &y.options.position, &y.options.age_bias})
    if (*x) *x = (*x)->to(type);
  if (y.options.masking) y.options.masking = y.options.masking->to(type == at::kDouble ? type : at::kFloat);
  return y;
}

/// The differentiable inputs of a case and their names.
inline Leaves leaves_of(SelectiveCase& c) {
  Leaves leaves = {{"q", c.inputs.q}, {"k", c.inputs.k}, {"v", c.inputs.v}};
  auto& o = c.options;
  if (o.select_q) leaves.emplace_back("select_q", *o.select_q), leaves.emplace_back("select_k", *o.select_k);
  if (o.position) leaves.emplace_back("position", *o.position);
  if (o.age_bias) leaves.emplace_back("age_bias", *o.age_bias);
  return leaves;
}

/// One query of one sample after the other, only what it sees; every operation is one that autograd knows.
inline SelectiveOutputs naive_selective_attention(const AttentionInputs& x, const SelectiveOptions& o) {
  using at::Tensor;
  const int64_t B = x.q.size(0), K = x.q.size(1), H = x.q.size(2), D = x.q.size(3), N = x.k.size(0);
  const auto offsets = integers(x.offsets);
  SelectiveOutputs y;
  y.masking = at::zeros({N}, at::kDouble);
  std::vector<Tensor> outs, memories, stats;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t first = offsets[b], n = offsets[b + 1] - first;
    auto rows = [&](const Tensor& t) { return t.narrow(0, first, n); };
    auto of_heads = [&](const Tensor& t) { return rows(t).repeat_interleave(H / t.size(1), 1); };
    Tensor F = o.masking ? rows(*o.masking) : at::zeros({n}, at::kDouble);
    for (int64_t t = 0; t < K; ++t) {
      const int64_t now = x.start[b].item<int64_t>() + t;
      const Tensor age = now - rows(x.time), q = x.q[b][t];
      Tensor visible = at::logical_and(age >= 0, age <= o.max_age);
      if (x.until) visible = at::logical_and(visible, rows(*x.until) > now);
      Tensor logit = at::einsum("hd,nhd->hn", {q, of_heads(x.k)});
      if (o.position && n > 0) {
        const int64_t P = o.position->size(0);
        const Tensor p = o.position->index_select(0, (age - 1).clamp(0, P - 1));
        logit = logit + at::where(at::logical_and(age >= 1, age <= P), at::matmul(q, p.t()), 0);
      }
      logit = logit * o.scale.value_or(1 / std::sqrt(static_cast<double>(D)));
      if (o.age_bias) logit = logit + o.age_bias->index_select(1, (age - o.bias_age).clamp(0, o.age_bias->size(1) - 1));
      Tensor S = logit[0];
      if (o.select_q)
        S = at::mv(rows(*o.select_k), (*o.select_q)[b][t]) / std::sqrt(static_cast<double>(o.select_q->size(2)));
      if (o.relu) S = S.relu();
      Tensor maskable = visible;
      if (o.first && !o.mask_first) maskable = at::logical_and(maskable, rows(*o.first) == 0);
      if (!o.mask_self) maskable = at::logical_and(maskable, age != 0);
      S = at::where(maskable, S, 0);
      if (!o.shift) F = F + S;
      const Tensor seen = visible.nonzero().squeeze(1);
      Tensor w = at::zeros({H, seen.numel()}, at::kDouble), lse = at::full({H}, -INFINITY, at::kDouble);
      if (seen.numel() > 0) {
        const Tensor masked = (logit - F).index_select(1, seen);
        w = at::softmax(masked, 1), lse = at::logsumexp(masked, 1);
      }
      if (o.dropout > 0) {
        const Tensor keep = at::zeros({H, seen.numel()}, at::kDouble);
        for (int64_t h = 0; h < H; ++h)
          for (int64_t i = 0; i < seen.numel(); ++i) {
            const uint64_t query = (b * H + h) * K + t, row = first + seen[i].item<int64_t>();
            const uint64_t bits =
                (mix64((query << 32) + row + mix64(o.seed->item<int64_t>())) ^ (uint64_t{1} << 63)) >> 40;
            keep[h][i] = static_cast<double>(bits) / (1 << 24) >= o.dropout ? 1 / (1 - o.dropout) : 0;
          }
        w = w * keep;
      }
      outs.push_back(at::einsum("hn,nhd->hd", {w, of_heads(x.v).index_select(0, seen)}));
      memories.push_back((1 - F.index_select(0, seen).clamp_max(o.cap) / o.cap).sum());
      stats.push_back(lse);
      if (o.shift) F = F + S;
    }
    rows(y.masking).copy_(F.detach());
  }
  y.out = at::stack(outs).view({B, K, H, D});
  y.memory = at::stack(memories).view({B, K});
  y.stats = at::stack(stats).view({B, K, H}).detach();
  return y;
}

}  // namespace lapse
