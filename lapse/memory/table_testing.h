// What the tests of the memory table share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "lapse/memory/table.h"

namespace lapse {

inline std::vector<int64_t> integers(const at::Tensor& x) {
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<int64_t>(), y.const_data_ptr<int64_t>() + y.numel()};
}

/// Tokens at times start[b], start[b] + 1, ...
inline void append_at(MemoryTable& table, const at::Tensor& start, Columns block) {
  const int64_t K = block.empty() ? 1 : block.begin()->second.size(1);
  block["time"] = start.unsqueeze(1) + at::arange(K, start.options());
  block["kind"] = at::zeros({start.size(0), K}, start.options().dtype(at::kByte));
  table.append(std::move(block));
}

/// One row per sample, whose values and time are equal.
inline void append_one(MemoryTable& table, int64_t time) {
  const int64_t B = table.samples();
  append_at(table, at::full({B}, time, at::kLong), {{"x", at::full({B, 1, 4}, static_cast<double>(time))}});
}

}  // namespace lapse
