// What the inputs of selective_attention must be.
#include <ATen/ATen.h>

#include "lapse/ops/selective_attention.h"

namespace lapse {

using at::Tensor;
using Optional = std::optional<Tensor>;

void check_selective_attention(const SelectiveInputs& x, const SelectiveOptions& o) {
  const auto& [q, k, v, offsets, start, time, until] = x;
  TORCH_CHECK(q.dim() == 4, "selective_attention: q must be [B, K, H, D], got ", q.sizes());
  const auto B = q.sym_size(0), K = q.sym_size(1), H = q.sym_size(2), D = q.sym_size(3);
  TORCH_CHECK(k.dim() == 3 && k.sym_size(1) == H && k.sym_size(2) == D,
              "selective_attention: k must be [N, H, D] = [N, ", H, ", ", D, "], got ", k.sym_sizes());
  TORCH_CHECK(v.sym_sizes() == k.sym_sizes(), "selective_attention: v must have the shape of k, got ", v.sym_sizes());
  const auto N = k.sym_size(0);
  const auto type = q.scalar_type();
  TORCH_CHECK(at::isFloatingType(type) && k.scalar_type() == type && v.scalar_type() == type,
              "selective_attention: q, k, v must share one floating dtype");
  auto integers = [](const Tensor& t, const c10::SymInt& n, const char* name) {
    TORCH_CHECK(t.dim() == 1 && t.sym_size(0) == n && t.scalar_type() == at::kLong, "selective_attention: ", name,
                " must be int64 of ", n, " elements, got ", t.scalar_type(), " ", t.sym_sizes());
  };
  integers(offsets, B + 1, "offsets");
  integers(start, B, "start");
  integers(time, N, "time");
  if (until) integers(*until, N, "until");
  TORCH_CHECK(!o.first || (o.first->dim() == 1 && o.first->sym_size(0) == N && o.first->scalar_type() == at::kBool),
              "selective_attention: first must be bool of ", N, " elements, got ", o.first->scalar_type(), " ",
              o.first->sym_sizes());
  auto floats = [](const Optional& t, c10::SymIntArrayRef shape, const char* name) {
    if (!t) return;
    TORCH_CHECK(t->sym_sizes() == shape && at::isFloatingType(t->scalar_type()), "selective_attention: ", name,
                " must be floating of shape ", shape, ", got ", t->scalar_type(), " ", t->sym_sizes());
  };
  floats(o.masking, {N}, "masking");
  TORCH_CHECK(o.select_q.has_value() == o.select_k.has_value(),
              "selective_attention: give select_q and select_k, or neither");
  if (o.select_q) {
    TORCH_CHECK(o.select_q->dim() == 3, "selective_attention: select_q must be [B, K, E], got ",
                o.select_q->sym_sizes());
    const auto E = o.select_q->sym_size(2);
    floats(o.select_q, {B, K, E}, "select_q");
    floats(o.select_k, {N, E}, "select_k");
  } else {
    TORCH_CHECK(H > 0, "selective_attention: without select_q there must be a head");
  }
  if (o.position) {
    TORCH_CHECK(o.position->dim() == 2, "selective_attention: position must be [P, D], got ", o.position->sym_sizes());
    floats(o.position, {o.position->sym_size(0), D}, "position");
  }
  TORCH_CHECK(o.max_age >= 0, "selective_attention: max_age must not be negative, got ", o.max_age);
  TORCH_CHECK(o.cap > 0, "selective_attention: cap must be positive, got ", o.cap);
  TORCH_CHECK(o.dropout >= 0 && o.dropout < 1, "selective_attention: dropout must be in [0, 1), got ", o.dropout);
  TORCH_CHECK(o.dropout == 0 || (o.seed && o.seed->numel() == 1 && o.seed->scalar_type() == at::kLong),
              "selective_attention: dropout needs a seed, an int64 tensor of one element");
}

void check_selective_attention_backward(const Tensor& grad_out, const Tensor& grad_memory, const SelectiveInputs& x,
                                        const SelectiveOptions& o, const SelectiveOutputs& y) {
  check_selective_attention(x, o);
  const auto B = x.q.sym_size(0), K = x.q.sym_size(1), H = x.q.sym_size(2), D = x.q.sym_size(3);
  auto shaped = [](const Tensor& t, c10::SymIntArrayRef shape, const char* name) {
    TORCH_CHECK(t.sym_sizes() == shape, "selective_attention_backward: ", name, " must be ", shape, ", got ",
                t.sym_sizes());
  };
  shaped(grad_out, {B, K, H, D}, "grad_out");
  shaped(grad_memory, {B, K}, "grad_memory");
  shaped(y.out, {B, K, H, D}, "out");
  shaped(y.stats, {B, K, H}, "stats");
}

void check_selective_prune(const SelectiveInputs& x, const SelectiveOptions& o, int64_t budget) {
  check_selective_attention(x, o);
  TORCH_CHECK(budget >= 1, "selective_prune: budget must be at least 1, got ", budget);
}

void check_selective_attention_offsets(const SelectiveInputs& x) {
  const Tensor offsets = x.offsets;
  TORCH_CHECK(offsets.device().is_cpu() && offsets.is_contiguous(),
              "selective_attention: offsets must be contiguous on the CPU");
  const auto* o = offsets.const_data_ptr<int64_t>();
  const int64_t B = x.q.size(0);
  TORCH_CHECK(o[0] >= 0 && o[B] <= x.k.size(0), "selective_attention: offsets must lie in 0 ... ", x.k.size(0));
  for (int64_t b = 0; b < B; ++b) TORCH_CHECK(o[b] <= o[b + 1], "selective_attention: offsets must not decrease");
}

}  // namespace lapse
