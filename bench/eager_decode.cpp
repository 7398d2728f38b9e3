#include "bench/eager_decode.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "lapse/ops/aten.h"

namespace lapse::bench {

using at::Tensor;

EagerDecoder::EagerDecoder(const StepShape& shape, const NamedTensors& parameters)
    : shape_(shape), weights_(parameters, shape.layers) {
  const int64_t M = shape.memory, H = shape.heads, D = shape.width / H;
  position_ = at::constant_pad_nd(weights_.position.detach(), {0, 0, 0, 1});
  const auto type = position_.scalar_type();
  for (int64_t l = 0; l < shape.layers; ++l)
    caches_.push_back({at::zeros({M, H, D}, type), at::zeros({M, H, D}, type), at::zeros({M})});
}

void EagerDecoder::fill() {
  for (Cache& cache : caches_) {
    cache.key.normal_(), cache.value.normal_();
    cache.span.fill_(static_cast<double>(shape_.memory + 1 - shape_.ramp) - 0.01);
  }
  time_ = shape_.memory;
}

/// What a query reads of the rows at ages 1 ... M, the newest M: [1, d]. Then its own row takes the oldest one's place.
Tensor EagerDecoder::read(const EagerLayer& layer, Cache& cache, const Tensor& x) const {
  const int64_t M = shape_.memory, H = shape_.heads, D = shape_.width / H, n = std::min(time_, M);
  const int64_t slot = time_ % M, P = position_.size(0) - 1;
  Tensor out = at::zeros({1, H * D}, x.options());
  if (n > 0) {
    const Tensor q = at::linear(x, layer.query).view({H, 1, D});
    const Tensor key = cache.key.narrow(0, 0, n), value = cache.value.narrow(0, 0, n);
    const Tensor age = at::remainder(slot - 1 - at::arange(n), M) + 1;  // of slot i: its row is the newest such one
    const Tensor by_age = at::matmul(q, position_.t());                 // [H, 1, P + 1]
    const Tensor by_row = by_age.index_select(2, at::where(age <= P, age - 1, P));
    const Tensor logits = (at::matmul(q, key.permute({1, 2, 0})) + by_row) / std::sqrt(static_cast<double>(D));
    const Tensor m = at::clamp((cache.span.narrow(0, 0, n) - age) / static_cast<double>(shape_.ramp) + 1, 0, 1);
    const Tensor a = at::softmax(logits.masked_fill(m <= 0, -1e8), 2) * m.to(x.scalar_type());
    out = at::matmul(a / (a.sum(2, true) + 1e-8), value.transpose(0, 1)).view({1, H * D});
  }
  cache.key.narrow(0, slot, 1).copy_(at::linear(x, layer.key).view({1, H, D}));
  cache.value.narrow(0, slot, 1).copy_(at::linear(x, layer.value).view({1, H, D}));
  cache.span.narrow(0, slot, 1).copy_(layer.spans(x, static_cast<double>(shape_.max_span)));
  return out;
}

Tensor EagerDecoder::next(int64_t token) {
  const at::NoGradGuard no_grad;
  Tensor h = weights_.embedding.narrow(0, token, 1);
  for (size_t l = 0; l < caches_.size(); ++l) h = weights_.layers[l].finish(h, read(weights_.layers[l], caches_[l], h));
  ++time_;
  return at::linear(h, weights_.output_weight, weights_.output_bias)[0];
}

}  // namespace lapse::bench
