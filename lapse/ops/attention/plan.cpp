#include "lapse/ops/attention/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/expiry.h"
#include "lapse/ops/attention/tile.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

constexpr int64_t kFar = int64_t{1} << 30;  // beyond every block; sums of two fit 32 bits

/// a - b, or the nearest number that there is.
int64_t difference(int64_t a, int64_t b) {
  int64_t result;
  if (!__builtin_sub_overflow(a, b, &result)) return result;
  return b > 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

void add(PlannedRows& rows, int64_t index, int64_t age, int64_t first, int64_t last, int64_t full, float span) {
  auto narrow = [](int64_t x) { return static_cast<int32_t>(std::clamp(x, -kFar, kFar)); };
  rows.index.push_back(index);
  rows.age.push_back(narrow(age));
  rows.first.push_back(narrow(first));
  rows.last.push_back(narrow(last));
  rows.full.push_back(narrow(full));
  rows.span.push_back(span);
}

PlannedRows rows_of(int64_t begin, int64_t end, int64_t start, const int64_t* time, const float* span,
                    const int64_t* until, int64_t K, const CoreOptions& o) {
  PlannedRows rows;
  rows.reserve(end - begin + kTileRows);
  const auto ramp = static_cast<float>(o.ramp);
  for (int64_t i = begin; i < end; ++i) {
    if (span != nullptr && std::isnan(span[i])) continue;  // seen by nobody, whatever `until` says
    const int64_t age = start - time[i];
    const int64_t first = difference(o.min_age, age);
    int64_t last = std::min(o.max_age == kNoLimit ? kNoLimit : difference(o.max_age, age), K - 1), full = kFar;
    if (std::max<int64_t>(first, 0) > last) continue;
    if (span != nullptr) full = static_cast<int64_t>(std::floor(std::clamp<double>(span[i], -kFar, kFar))) - age;
    const int64_t ends = until != nullptr ? until[i] : span != nullptr ? ramp_until(time[i], span[i], ramp) : kNoLimit;
    if (ends <= start + last) last = std::max(ends, start) - 1 - start;
    if (std::max<int64_t>(first, 0) > last) continue;
    add(rows, i, age, first, last, full, span != nullptr ? span[i] : 0);
  }
  rows.count = static_cast<int64_t>(rows.index.size());
  while (rows.index.size() % kTileRows != 0) add(rows, -1, -kFar, kFar, -kFar, -kFar, 0);
  return rows;
}

}  // namespace

RowPlan plan_rows(const AttentionInputs& x, const CoreOptions& o) {
  RowPlan plan;
  const int64_t B = x.q.size(0), K = x.q.size(1), G = x.k.size(1);
  const at::Tensor start = x.start.contiguous(), time = x.time.contiguous();
  const at::Tensor span = o.row_span ? o.row_span->to(at::kFloat).contiguous() : at::Tensor();
  const at::Tensor until = x.until ? x.until->contiguous() : at::Tensor();
  const auto* offsets = x.offsets.const_data_ptr<int64_t>();
  int64_t sum = 0;
  plan.rows.resize(B);
  for_each_task(B, [&](int64_t b) {
    plan.rows[b] = rows_of(offsets[b], offsets[b + 1], start.const_data_ptr<int64_t>()[b],
                           time.const_data_ptr<int64_t>(), o.row_span ? span.const_data_ptr<float>() : nullptr,
                           x.until ? until.const_data_ptr<int64_t>() : nullptr, K, o);
  });
  for (const auto& rows : plan.rows) sum += static_cast<int64_t>(rows.index.size());
  // Some 32 tasks or more, so that ragged samples and few heads still use all cores, unless that makes them tiny.
  const int64_t tiles = std::max<int64_t>(2, (sum * G / 32 + kTileRows - 1) / kTileRows);
  for (int64_t b = 0; b < B; ++b) {
    const auto n = static_cast<int64_t>(plan.rows[b].index.size()) / kTileRows;
    const int64_t chunks = (n + tiles - 1) / tiles;
    for (int64_t g = 0; g < G; ++g)
      for (int64_t c = 0; c < chunks; ++c)
        plan.tasks.push_back({b, g, n * c / chunks * kTileRows, n * (c + 1) / chunks * kTileRows, c, chunks});
  }
  return plan;
}

}  // namespace lapse
