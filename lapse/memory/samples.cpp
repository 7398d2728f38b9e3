#include "lapse/memory/samples.h"

#include <algorithm>

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

MemoryTable samples_of(const MemoryTable& table, int64_t first, int64_t count) {
  TORCH_CHECK(first >= 0 && count >= 0 && first + count <= table.samples(), "there are ", table.samples(),
              " samples, not ", first, " ... ", first + count - 1);
  if (table.rows() == 0) return MemoryTable(count);
  const int64_t begin = table.first_row(first), end = table.first_row(first + count);
  Columns columns;
  for (const auto& [name, values] : table.columns()) columns[name] = values.narrow(0, begin, end - begin);
  return MemoryTable::restore(table.offsets().narrow(0, first, count + 1) - begin, std::move(columns));
}

Tensor of_rows(const MemoryTable& table, const Tensor& values) {
  if (!values.is_cpu() || values.scalar_type() != at::kLong) return values.index_select(0, table.sample());
  TORCH_CHECK(values.dim() == 1 && values.size(0) == table.samples(), "there are ", table.samples(), " samples, got ",
              values.sizes());
  const Tensor given = values.contiguous(), all = at::empty({table.rows()}, at::kLong);
  auto* to = all.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < table.samples(); ++b)
    std::fill(to + table.first_row(b), to + table.first_row(b + 1), given.const_data_ptr<int64_t>()[b]);
  return all;
}

MemoryTable joined(const std::vector<MemoryTable>& tables) {
  std::vector<Tensor> offsets = {at::zeros({1}, at::kLong)};
  std::map<std::string, std::vector<Tensor>> columns;
  int64_t rows = 0, samples = 0;
  for (const auto& table : tables) {
    offsets.push_back(table.offsets().narrow(0, 1, table.samples()) + rows);
    rows += table.rows(), samples += table.samples();
    if (table.rows() == 0) continue;
    for (const auto& [name, values] : table.columns()) columns[name].push_back(values);
  }
  if (rows == 0) return MemoryTable(samples);
  Columns all;
  for (const auto& [name, values] : columns) all[name] = lapse::cat(values);
  return MemoryTable::restore(lapse::cat(offsets), std::move(all));
}

void check_saved(const MemoryTable& table, const Tensor& clock) {
  constexpr int64_t kMostTime = int64_t{1} << 50;
  TORCH_CHECK(clock.dim() == 1 && clock.size(0) == table.samples() && clock.scalar_type() == at::kLong,
              "the clock must be int64, one number a stream");
  TORCH_CHECK((clock >= 0).all().item<bool>() && (clock < kMostTime).all().item<bool>(),
              "the clock must lie between 0 and 2^50");
  if (table.rows() == 0) return;
  TORCH_CHECK((table.kind() <= static_cast<int64_t>(RowKind::pooled)).all().item<bool>(), "'kind' must be 0 to 3");
  // Attention relies on the order, in which a sample's pooled rows come first.
  const Tensor &time = table.time(), sample = table.sample();
  const Tensor group = sample * 2 + at::logical_not(is_kind(table.kind(), RowKind::pooled));
  const Tensor grows = at::logical_or(at::logical_and(at::diff(time) > 0, at::diff(group) == 0), at::diff(group) > 0);
  TORCH_CHECK(grows.all().item<bool>() && (time < clock.index_select(0, sample)).all().item<bool>(),
              "times must grow within a stream and lie before its clock");
  TORCH_CHECK((time > -kMostTime).all().item<bool>(), "times must be more than -2^50");
}

void check_columns(const MemoryTable& table, const Columns& like) {
  if (table.rows() == 0) return;
  for (const auto& [name, values] : table.columns()) {
    const auto wanted = like.find(name);
    TORCH_CHECK(wanted != like.end(), "there is no column '", name, "'");
    TORCH_CHECK(values.scalar_type() == wanted->second.scalar_type() &&
                    values.sizes().slice(1) == wanted->second.sizes().slice(1),
                "column '", name, "' has another type or shape");
  }
  for (const auto& column : like)
    TORCH_CHECK(table.columns().count(column.first), "column '", column.first, "' is missing");
}

}  // namespace lapse
