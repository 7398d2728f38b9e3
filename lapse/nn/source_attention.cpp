#include "lapse/nn/source_attention.h"

#include <cmath>
#include <limits>

#include "lapse/nn/buckets.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/dense/linear.h"
#include "lapse/ops/waiting.h"

namespace lapse {

using at::Tensor;

SourceAttention::SourceAttention(const ModelShape& shape, const AttentionOptions& o, Norm before, Random& random)
    : shape_(shape), dropout_(o.dropout), w_(shape, o, random), before_(std::move(before)) {}

SourceRows SourceAttention::packed(const Tensor& key, const Tensor& value, const Tensor& lengths,
                                   const Padding& padding) const {
  SourceRows rows{w_.heads(key).flatten(0, 1), w_.heads(value).flatten(0, 1), {}, {}};
  const int64_t B = padding ? lengths.size(0) : key.size(0), n = rows.key.size(0);
  if (!lengths.defined()) {
    rows.offsets = at::arange(B + 1, at::kLong) * key.size(1);
    rows.time = at::arange(key.size(1), key.options().dtype(at::kLong)).repeat({B});
    return rows;
  }
  rows.offsets = at::constant_pad_nd(lengths.to(at::kCPU).cumsum(0), {1, 0});
  const int64_t tokens = rows.offsets.const_data_ptr<int64_t>()[B];
  if (n > tokens) {  // little padding
    const Tensor times = at::arange(key.size(1), key.options().dtype(at::kLong));
    const Tensor places = places_of((times < lengths.unsqueeze(1)).flatten(), tokens);
    for (Tensor* x : {&rows.key, &rows.value}) *x = x->index_select(0, places);
  }
  const Tensor begins = sent(rows.offsets.narrow(0, 0, B), key.device());
  rows.time = at::arange(tokens, begins.options()) - at::repeat_interleave(begins, lengths, 0, tokens);
  return rows;
}

SourceRows SourceAttention::rows(const Tensor& x, const Tensor& lengths, const Padding& padding, bool bfloat16) const {
  const auto made = lapse::linear(x, {w_.key.weight, w_.value.weight}, {.bfloat16 = bfloat16});
  SourceRows rows = packed(made[0], made[1], lengths, padding);
  if (w_.bfloat16())
    for (Tensor* kept : {&rows.key, &rows.value}) *kept = kept->to(at::kBFloat16);
  return rows;
}

Tensor SourceAttention::operator()(const Tensor& h, LayerPass& pass) {
  if (pass.draws.dropped) return {};
  const bool bfloat16 = pass.options.bfloat16;
  std::vector<Tensor> weights = {w_.query.weight};
  if (!pass.source) weights.insert(weights.end(), {w_.key.weight, w_.value.weight});
  const auto made = lapse::linear(before_(h), weights, {.bfloat16 = bfloat16});
  const SourceRows rows = pass.source ? *pass.source : packed(made[1], made[2], pass.options.lengths, pass.padding);
  RampOptions options;
  options.min_age = std::numeric_limits<int64_t>::min();
  if (!shape_.scaled) options.scale = 1;
  if (!pass.source && pass.ages.bias.defined())
    options.age_bias = pass.ages.bias, options.bias_age = -(pass.ages.bias.size(1) / 2);  // of -n ... n
  if (dropout_ > 0 && pass.draws.seed) {
    options.dropout = dropout_;
    const auto seed = static_cast<int64_t>(mix64(*pass.draws.seed + 1));  // other than the layer's other attention's
    options.seed = at::full({1}, seed, pass.times.start.options());
  }
  const Tensor q = pass.padding.restored(w_.heads(made[0]));
  AttentionInputs inputs{q, rows.key, rows.value, rows.offsets, pass.times.start, rows.time};
  if (bfloat16 || w_.bfloat16())
    for (Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = x->to(at::kBFloat16);
  const Tensor attended = ramp_attention(inputs, options).out.to(h.scalar_type());
  return w_.out(pass.padding.removed(attended.flatten(2)), bfloat16);
}

}  // namespace lapse
