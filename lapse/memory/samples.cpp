#include "lapse/memory/samples.h"

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

MemoryTable samples_of(const MemoryTable& table, int64_t first, int64_t count) {
  if (table.rows() == 0) return MemoryTable(count);
  const int64_t begin = table.first_row(first), end = table.first_row(first + count);
  Columns columns;
  for (const auto& [name, values] : table.columns()) columns[name] = values.narrow(0, begin, end - begin);
  return MemoryTable::restore(table.offsets().narrow(0, first, count + 1) - begin, std::move(columns));
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

}  // namespace lapse
