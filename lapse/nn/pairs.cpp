#include "lapse/nn/pairs.h"

#include <ATen/core/grad_mode.h>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// What is read is linear in the values: where these are unit vectors, it is the weights themselves, whatever the
/// method. Each reading gives those of D rows of every sample. [B, H, K, n]
Tensor weights(const Method& method, const Query& query, Rows rows, int64_t n) {
  const int64_t B = query.q.size(0), G = rows.value.size(1), D = rows.value.size(2);
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < n; begin += D) {
    const int64_t some = std::min(D, n - begin);
    const Tensor units = at::zeros({B, n, G, D}, rows.value.options());
    units.narrow(1, begin, some).copy_(at::eye(some, D, units.options()).unsqueeze(1));
    rows.value = units.view({B * n, G, D});
    parts.push_back(method.read(query, rows).out.narrow(3, 0, some));
  }
  return lapse::cat(parts, 3).transpose(1, 2);
}

}  // namespace

Columns pairs_of(const Method& method, const Query& query, const Rows& rows, Pairs pairs) {
  at::NoGradGuard no_grad;
  const int64_t B = query.q.size(0), K = query.q.size(1), n = rows.table.rows() / B;
  for (int64_t b = 0; b < B; ++b)
    TORCH_CHECK(rows.table.first_row(b) == b * n, "queries and rows are paired where samples have equally many rows");
  Columns all;
  if (pairs == Pairs::reads) return {{"weights", weights(method, query, rows, n)}};
  if (pairs == Pairs::weights) all = {{"weights", weights(method, query, rows, n)}};
  if (pairs == Pairs::told)
    for (const auto& [name, values] : method.tell_pairs(query, rows)) all[name] = values.unsqueeze(1);
  for (auto& [name, values] : all) values = values.narrow(3, n - K, K);  // without rows from before the first token
  return all;
}

}  // namespace lapse
