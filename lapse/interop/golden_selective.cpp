#include "lapse/interop/golden_selective.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_attention.h"

namespace lapse {
namespace {

using at::Tensor;

const Tensor& input(const Columns& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) fail("the golden file lacks the tensor '" + name + "'");
  if (found->second.dim() != 4) fail("the golden file's tensor '" + name + "' is not of the form [B, H, N, D]");
  return found->second;
}

/// [B, H, N, D] as queries [B, N, H, D], and back.
Tensor turned(const Tensor& x) { return x.transpose(1, 2); }

/// All tokens of all samples, from `from` on: `length` queries and the rows up to the last of them.
AttentionInputs tokens(const Tensor& q, const Tensor& k, const Tensor& v, int64_t from, int64_t length) {
  const int64_t B = q.size(0), rows = from + length;
  const auto packed = [&](const Tensor& x) { return turned(x).narrow(1, 0, rows).flatten(0, 1); };
  return {turned(q).narrow(1, from, length),
          packed(k),
          packed(v),
          at::arange(B + 1, at::kLong) * rows,
          at::full({B}, from, at::kLong),
          at::arange(rows, at::kLong).repeat({B})};
}

/// F [B, N, N] before each query: the running sums of decoding.
Tensor masking(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t B = q.size(0), N = q.size(2);
  const Tensor all = at::zeros({B, N, N}, q.options());
  Tensor sums = at::zeros({B, 0}, q.options());
  for (int64_t n = 0; n < N; ++n) {
    sums = lapse::cat({sums, at::zeros({B, 1}, q.options())}, 1);
    all.select(1, n).narrow(1, 0, n + 1).copy_(sums);
    const AttentionInputs x = tokens(q, k, v, n, 1);
    sums = selective_attention(x, {.masking = sums.flatten(), .first = x.time == 0}).masking.view({B, n + 1});
  }
  return all;
}

}  // namespace

Columns selective_outputs(const Columns& inputs, const GoldenMetadata& metadata) {
  const auto epsilon = golden_value<double>(metadata, "eps"), cap = golden_value<double>(metadata, "tau");
  const auto leaf = [&](const char* name) { return input(inputs, name).detach().requires_grad_(true); };
  const Tensor q = leaf("q"), k = leaf("k"), v = leaf("v");
  const int64_t B = q.size(0), N = q.size(2);
  AttentionInputs all = tokens(q, k, v, 0, N);
  const Tensor first = all.time == 0;
  Columns result;
  const auto y = selective_attention(all, {.first = first, .cap = cap});
  const Tensor largest = std::get<0>(y.memory.max(1)).mean();
  at::Tensor loss = (input(inputs, "weight") * turned(y.out)).sum() + epsilon * largest / N;
  loss.backward();
  at::NoGradGuard no_grad;
  result = {{"out", turned(y.out)},        {"memory_per_token", y.memory}, {"memory_max", largest.view(1)},
            {"masking", masking(q, k, v)}, {"grad_q", q.grad()},           {"grad_k", k.grad()},
            {"grad_v", v.grad()}};
  result["out_no_shift"] = turned(selective_attention(all, {.first = first, .shift = false}).out);
  result["out_mask_bos"] = turned(selective_attention(all, {.first = first, .mask_first = true}).out);
  result["out_mask_self"] = turned(selective_attention(all, {.first = first, .mask_self = true}).out);
  const Tensor time = at::arange(N, at::kLong);
  for (const int64_t budget : golden_list(metadata, "budgets")) {
    all.until.reset();
    const Tensor until = selective_prune(all, {.first = first}, budget);
    const Tensor query = time.view({1, N, 1});
    const Tensor held = at::logical_and(time.view({1, 1, N}) <= query, query < until.view({B, 1, N}));
    result[fmt::format("held.{}", budget)] = held.to(at::kLong);
    all.until = until;
    result[fmt::format("out_budget.{}", budget)] = turned(selective_attention(all, {.first = first}).out);
  }
  return result;
}

}  // namespace lapse
