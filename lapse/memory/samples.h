// Tables of some samples, and of several tables' samples together.
#pragma once

#include <vector>

#include "lapse/memory/table.h"

namespace lapse {

/// The table's samples first ... first + count - 1.
MemoryTable samples_of(const MemoryTable& table, int64_t first, int64_t count);

/// values [B] of the samples as those of their rows: [N]. Without a gradient.
at::Tensor of_rows(const MemoryTable& table, const at::Tensor& values);

/// The samples of all tables, one table's after the other's. Those that have rows have the same columns.
MemoryTable joined(const std::vector<MemoryTable>& tables);

/// c10::Error unless a table that was saved is one that streams could have whose next tokens have the times clock [B]
/// int64: times ascend where attention relies on it, lie before the clock and within 2^50, and kinds are known.
void check_saved(const MemoryTable& table, const at::Tensor& clock);

/// c10::Error unless a table that has rows has the columns of `like`, with rows of the same type and shape, and no
/// others.
void check_columns(const MemoryTable& table, const Columns& like);

}  // namespace lapse
