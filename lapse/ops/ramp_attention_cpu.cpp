// ramp_attention on the CPU. For now every call takes the reference, its samples spread over the cores.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "lapse/ops/ramp_attention.h"

namespace lapse {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

std::tuple<Tensor, Tensor, Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                   const Tensor& offsets, const Tensor& start, const Tensor& time,
                                                   const Optional& row_span, const Optional& head_span,
                                                   const Optional& position, const Optional& logit,
                                                   const Optional& seed, double ramp, int64_t min_age, int64_t max_age,
                                                   double dropout, bool received) {
  auto y = ramp_attention_reference({q, k, v, offsets, start, time}, {row_span, head_span, position, logit, seed, ramp,
                                                                      min_age, max_age, dropout, received});
  return {y.out, y.ramp_sum, y.received, y.stats};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> backward(
    const Tensor& grad_out, const Tensor& grad_ramp_sum, const Tensor& out, const Tensor& stats, const Tensor& q,
    const Tensor& k, const Tensor& v, const Tensor& offsets, const Tensor& start, const Tensor& time,
    const Optional& row_span, const Optional& head_span, const Optional& position, const Optional& logit,
    const Optional& seed, double ramp, int64_t min_age, int64_t max_age, double dropout) {
  auto g = ramp_attention_backward_reference(
      grad_out, grad_ramp_sum, {q, k, v, offsets, start, time},
      {row_span, head_span, position, logit, seed, ramp, min_age, max_age, dropout, false}, {out, {}, {}, stats});
  return {g.q, g.k, g.v, g.row_span, g.head_span, g.position, g.logit};
}

}  // namespace

TORCH_LIBRARY_IMPL(lapse, CPU, m) {
  m.impl("ramp_attention", forward);
  m.impl("ramp_attention_backward", backward);
}

}  // namespace lapse
