#include "lapse/ops/attention/options.h"

#include <cfloat>
#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/one_device.h"

namespace lapse {

using at::Tensor;

namespace {

void check_integers(const char* op, const char* name, const Tensor& x, const c10::SymInt& n) {
  TORCH_CHECK(x.dim() == 1 && x.sym_size(0) == n && x.scalar_type() == at::kLong, op, ": ", name, " must be int64 of ",
              n, " elements, got ", x.scalar_type(), " ", x.sym_sizes());
}

}  // namespace

void check_floating(const char* op, const char* name, const std::optional<Tensor>& x, c10::SymIntArrayRef shape) {
  if (!x) return;
  TORCH_CHECK(x->sym_sizes() == shape && at::isFloatingType(x->scalar_type()), op, ": ", name,
              " must be floating of shape ", shape, ", got ", x->scalar_type(), " ", x->sym_sizes());
}

void check_shape(const char* op, const char* name, const Tensor& x, c10::SymIntArrayRef shape) {
  TORCH_CHECK(x.sym_sizes() == shape, op, ": ", name, " must be ", shape, ", got ", x.sym_sizes());
}

void check_attention(const char* op, const AttentionInputs& x, const CoreOptions& o) {
  const auto& [q, k, v, offsets, start, time, until] = x;
  TORCH_CHECK(q.dim() == 4, op, ": q must be [B, K, H, D], got ", q.sizes());
  const auto B = q.sym_size(0), H = q.sym_size(2), D = q.sym_size(3);
  TORCH_CHECK(D > 0, op, ": q must have at least one feature a head, got ", q.sym_sizes());
  TORCH_CHECK(k.dim() == 3 && k.sym_size(2) == D, op, ": k must be [N, G, ", D, "], got ", k.sym_sizes());
  const auto N = k.sym_size(0), G = k.sym_size(1);
  TORCH_CHECK(G == H || (G > 0 && H % G == 0), op, ": k must be [N, G, D] with a G that divides q's ", H,
              " heads, got ", k.sym_sizes());
  TORCH_CHECK(v.sym_sizes() == k.sym_sizes(), op, ": v must have the shape of k, got ", v.sym_sizes());
  const auto type = q.scalar_type();
  TORCH_CHECK(at::isFloatingType(type) && k.scalar_type() == type && v.scalar_type() == type, op,
              ": q, k, v must share one floating dtype, got ", type, ", ", k.scalar_type(), ", ", v.scalar_type());
  check_device(op, q,
               {{"k", k},
                {"v", v},
                {"start", start},
                {"time", time},
                {"until", until},
                {"row_span", o.row_span},
                {"head_span", o.head_span},
                {"logit", o.logit},
                {"position", o.position},
                {"age_bias", o.age_bias}});
  check_integers(op, "offsets", offsets, B + 1);
  check_integers(op, "start", start, B);
  check_integers(op, "time", time, N);
  if (until) check_integers(op, "until", *until, N);
  check_floating(op, "row_span", o.row_span, {N});
  check_floating(op, "head_span", o.head_span, {H});
  check_floating(op, "logit", o.logit, {N, H});
  TORCH_CHECK(!(o.row_span && o.head_span), op, ": give row_span or head_span, not both");
  const auto ramp = static_cast<float>(o.ramp);  // as the kernels have it
  TORCH_CHECK(ramp >= FLT_MIN && ramp <= FLT_MAX, op, ": ramp must be positive and finite in float32, got ", o.ramp);
  TORCH_CHECK(o.max_age >= o.min_age, op, ": min_age must be at most max_age, got ", o.min_age, " and ", o.max_age);
  if (o.position) {
    TORCH_CHECK(o.position->dim() == 2, op, ": position must be [P, D], got ", o.position->sym_sizes());
    check_floating(op, "position", o.position, {o.position->sym_size(0), D});
  }
  if (o.age_bias) {
    TORCH_CHECK(o.age_bias->dim() == 2 && o.age_bias->sym_size(1) > 0, op, ": age_bias must be [H, A] with A > 0, got ",
                o.age_bias->sym_sizes());
    check_floating(op, "age_bias", o.age_bias, {H, o.age_bias->sym_size(1)});
  }
  constexpr int64_t kFar = int64_t{1} << 29;
  TORCH_CHECK(o.bias_age >= -kFar && o.bias_age <= kFar, op, ": bias_age must lie within -2^29 ... 2^29, got ",
              o.bias_age);
  // So that what the kernels hide, a logit of -1e30 before it is scaled, stays far below what they show.
  TORCH_CHECK(!o.scale || (*o.scale >= 1e-20 && *o.scale <= 1e20), op,
              ": scale must be positive, within 1e-20 ... 1e20, got ", o.scale.value_or(0));
  TORCH_CHECK(o.dropout >= 0 && o.dropout < 1, op, ": dropout must be in [0, 1), got ", o.dropout);
  TORCH_CHECK(
      o.dropout == 0 || (o.seed && o.seed->numel() == 1 && o.seed->dim() <= 1 && o.seed->scalar_type() == at::kLong),
      op, ": dropout needs a seed, an int64 tensor of one element");
}

void check_attention_offsets(const char* op, const AttentionInputs& x) {
  TORCH_CHECK(x.offsets.device().is_cpu() && x.offsets.is_contiguous(), op, ": offsets must be contiguous on the CPU");
  const auto* offsets = x.offsets.const_data_ptr<int64_t>();
  const int64_t B = x.q.size(0);
  TORCH_CHECK(offsets[0] >= 0 && offsets[B] <= x.k.size(0), op, ": offsets must lie in 0 ... ", x.k.size(0), ", got ",
              offsets[0], " to ", offsets[B]);
  for (int64_t b = 0; b < B; ++b)
    TORCH_CHECK(offsets[b] <= offsets[b + 1], op, ": offsets must not decrease, got ", offsets[b], " and then ",
                offsets[b + 1], " for sample ", b);
}

}  // namespace lapse
