#include "bench/call.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

using at::Tensor;

constexpr double kRamp = 64;

int64_t sum(const std::vector<int64_t>& values) {
  int64_t all = 0;
  for (const int64_t value : values) all += value;
  return all;
}

/// 14 D pairs + 6 D near per head, where `near` pairs have a position's embedding.
double flops_of(const AttentionInputs& x, double pairs, double near) {
  return static_cast<double>(x.q.size(2) * x.q.size(3)) * (14 * pairs + 6 * near);
}

}  // namespace

void Call::run() const {
  const at::NoGradGuard no_grad;
  const auto y = ramp_attention(inputs, options);
  ramp_attention_backward(grad_out, grad_ramp_sum, inputs, options, y);
}

double Call::flops(bool with_positions) const {
  const double rows = (*options.row_span > -options.ramp).sum().item<double>();
  const auto queries = static_cast<double>(inputs.q.size(1)), samples = static_cast<double>(inputs.q.size(0));
  const double positions = with_positions ? static_cast<double>(options.position->size(0)) : 0;
  return flops_of(inputs, queries * rows, samples * queries * positions);
}

Call::Visible Call::visible() const {
  const auto* offsets = inputs.offsets.const_data_ptr<int64_t>();
  const int64_t B = inputs.q.size(0), K = inputs.q.size(1);
  double pairs = 0, near = 0;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t n = offsets[b + 1] - offsets[b];
    const Tensor query_time = inputs.start[b] + at::arange(K, at::kLong);
    const Tensor age = query_time.unsqueeze(1) - inputs.time.narrow(0, offsets[b], n);
    const Tensor m = 1 + (options.row_span->narrow(0, offsets[b], n) - age) / options.ramp;
    const Tensor seen = at::logical_and(m > 0, age >= 1);
    pairs += seen.sum().item<double>();
    near += at::logical_and(seen, age <= options.position->size(0)).sum().item<double>();
  }
  return {pairs / static_cast<double>(K * offsets[B]), flops_of(inputs, pairs, near)};
}

Call make_call(const CallShape& shape) {
  at::manual_seed(1);
  const int64_t B = static_cast<int64_t>(shape.rows.size()), N = sum(shape.rows), H = shape.heads, D = shape.head_dim;
  auto random = [&](at::IntArrayRef size) { return at::randn(size).to(shape.type); };
  std::vector<int64_t> offsets = {0}, start;
  std::vector<Tensor> time;
  for (const int64_t rows : shape.rows) {
    offsets.push_back(offsets.back() + rows), start.push_back(rows - shape.queries);
    time.push_back(at::arange(rows, at::kLong));
  }
  Call call;
  call.inputs = {random({B, shape.queries, H, D}), random({N, H, D}), random({N, H, D}), at::tensor(offsets, at::kLong),
                 at::tensor(start, at::kLong),     lapse::cat(time)};
  // m = 1 at every age, or 0 at every age >= 0: 1 + (span - a) / R.
  const double longest = static_cast<double>(*std::max_element(shape.rows.begin(), shape.rows.end()));
  Tensor span = (1 + at::rand({N})) * longest;
  const auto dead = static_cast<int64_t>(shape.expired * static_cast<double>(N));
  span.index_fill_(0, at::randperm(N, at::kLong).narrow(0, 0, dead), -kRamp);
  call.options.row_span = span;
  call.options.ramp = kRamp;
  call.options.position = random({shape.queries, D});
  call.grad_out = random({B, shape.queries, H, D});
  call.grad_ramp_sum = at::full({B}, 1e-8);
  return call;
}

Call survivors(const Call& call) {
  const Tensor alive = *call.options.row_span > -call.options.ramp, kept = alive.nonzero().squeeze(1);
  Call less = call;
  for (Tensor* column : {&less.inputs.k, &less.inputs.v, &less.inputs.time}) *column = column->index_select(0, kept);
  less.options.row_span = less.options.row_span->index_select(0, kept);
  const Tensor before = at::constant_pad_nd(alive.to(at::kLong).cumsum(0), {1, 0});
  less.inputs.offsets = before.index_select(0, call.inputs.offsets);
  return less;
}

}  // namespace lapse::bench
