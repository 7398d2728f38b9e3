#include "lapse/ops/attention/work.h"

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/linear.h"

namespace lapse {
namespace {

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

at::ScalarType type_of(float) { return at::kFloat; }
at::ScalarType type_of(at::BFloat16) { return at::kBFloat16; }

}  // namespace

template <class T>
TiledCall<T>::TiledCall(const AttentionInputs& x, const CoreOptions& o)
    : options(o),
      B(x.q.size(0)),
      K(x.q.size(1)),
      H(x.q.size(2)),
      G(x.k.size(1)),
      D(x.q.size(3)),
      N(x.k.size(0)),
      group(H / std::max<int64_t>(G, 1)),
      unit(o.scale ? static_cast<float>(1 / *o.scale) : std::sqrt(static_cast<float>(D))) {
  const auto type = type_of(T());
  q_tensor = x.q.to(type).contiguous(), k_tensor = x.k.to(type).contiguous(), v_tensor = x.v.to(type).contiguous();
  q = q_tensor.const_data_ptr<T>(), k = k_tensor.const_data_ptr<T>(), v = v_tensor.const_data_ptr<T>();
  offsets = x.offsets.const_data_ptr<int64_t>();
  width = rounded_up(D, 16);
  queries = static_cast<int>(std::min<int64_t>(rounded_up(std::max<int64_t>(K, 1), 16), kTileQueries));
  P = o.position ? o.position->size(0) : 0;
  ages = rounded_up(P, kTileRows);
  if (P > 0) {
    position_tensor = at::constant_pad_nd(o.position->to(type), {0, width - D, 0, ages - P}).contiguous();
    position_t_tensor = position_tensor.t().contiguous();
    position = position_tensor.const_data_ptr<T>();
    position_t = position_t_tensor.const_data_ptr<T>();
  }
  if (o.age_bias) {
    A = o.age_bias->size(1);
    const at::Tensor scores = o.age_bias->to(at::kFloat).mul(unit);
    auto times = [&](int64_t column) { return scores.narrow(1, column, 1).expand({H, kTileQueries}); };
    bias_tensor = lapse::cat({times(0), scores, times(A - 1)}, 1);
    bias = bias_tensor.const_data_ptr<float>();
  }
  if (o.logit) {
    logit_tensor = o.logit->to(at::kFloat).contiguous();
    logit = logit_tensor.const_data_ptr<float>();
  }
  if (o.head_span) {
    const at::Tensor spans = o.head_span->to(at::kFloat).contiguous();
    head_span.assign(spans.const_data_ptr<float>(), spans.const_data_ptr<float>() + H);
  }
  if (o.dropout > 0) seed = mix64(static_cast<uint64_t>(o.seed->item<int64_t>()));
  plan = plan_rows(x, o);
}

template struct TiledCall<float>;
template struct TiledCall<at::BFloat16>;

bool computes_bfloat16(const AttentionInputs& x) {
  return has_bfloat16_products() && x.q.scalar_type() == at::kBFloat16;
}

}  // namespace lapse
