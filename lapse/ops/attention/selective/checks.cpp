// What the inputs of selective_attention must be.

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/one_device.h"
#include "lapse/ops/attention/selective/selective_attention.h"

namespace lapse {

using at::Tensor;

CoreOptions core_options(const SelectiveOptions& o) {
  CoreOptions core;
  core.position = o.position, core.seed = o.seed;
  core.age_bias = o.age_bias, core.bias_age = o.bias_age, core.scale = o.scale;
  core.min_age = 0, core.max_age = o.max_age, core.dropout = o.dropout;
  return core;
}

void check_selective_attention(const AttentionInputs& x, const SelectiveOptions& o) {
  constexpr const char* op = "selective_attention";
  TORCH_CHECK(o.max_age >= 0, "selective_attention: a query reads no later rows, so max_age must be 0 or more, got ",
              o.max_age);
  check_attention(op, x, core_options(o));
  const auto B = x.q.sym_size(0), K = x.q.sym_size(1), H = x.q.sym_size(2), N = x.k.sym_size(0);
  check_device(op, x.q,
               {{"first", o.first}, {"masking", o.masking}, {"select_q", o.select_q}, {"select_k", o.select_k}});
  TORCH_CHECK(!o.first || (o.first->dim() == 1 && o.first->sym_size(0) == N && o.first->scalar_type() == at::kBool),
              "selective_attention: first must be bool of ", N, " elements, got ", o.first->scalar_type(), " ",
              o.first->sym_sizes());
  check_floating(op, "masking", o.masking, {N});
  TORCH_CHECK(o.select_q.has_value() == o.select_k.has_value(),
              "selective_attention: give select_q and select_k, or neither");
  if (o.select_q) {
    TORCH_CHECK(o.select_q->dim() == 3, "selective_attention: select_q must be [B, K, E], got ",
                o.select_q->sym_sizes());
    const auto E = o.select_q->sym_size(2);
    TORCH_CHECK(E > 0, "selective_attention: select_q must have at least one feature, got ", o.select_q->sym_sizes());
    check_floating(op, "select_q", o.select_q, {B, K, E});
    check_floating(op, "select_k", o.select_k, {N, E});
  } else {
    TORCH_CHECK(H > 0, "selective_attention: without select_q there must be a head");
  }
  TORCH_CHECK(o.cap >= 1e-20, "selective_attention: cap must be positive, at least 1e-20, got ", o.cap);
}

void check_selective_attention_backward(const Tensor& grad_out, const Tensor& grad_memory, const AttentionInputs& x,
                                        const SelectiveOptions& o, const SelectiveOutputs& y) {
  check_selective_attention(x, o);
  constexpr const char* op = "selective_attention_backward";
  const auto B = x.q.sym_size(0), K = x.q.sym_size(1), H = x.q.sym_size(2), D = x.q.sym_size(3);
  check_shape(op, "grad_out", grad_out, {B, K, H, D});
  check_shape(op, "grad_memory", grad_memory, {B, K});
  check_shape(op, "out", y.out, {B, K, H, D});
  check_shape(op, "stats", y.stats, {B, K, H});
}

void check_selective_prune(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget) {
  check_selective_attention(x, o);
  TORCH_CHECK(budget >= 1, "selective_prune: budget must be at least 1, got ", budget);
}

}  // namespace lapse
