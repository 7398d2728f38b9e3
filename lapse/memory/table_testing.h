// What the tests of the memory table share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <vector>

#include "lapse/memory/table.h"

namespace lapse {

inline std::vector<int64_t> integers(const at::Tensor& x) {
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<int64_t>(), y.const_data_ptr<int64_t>() + y.numel()};
}

/// One row per sample, whose values and time are equal.
inline void append_one(MemoryTable& table, int64_t time) {
  const int64_t B = table.samples();
  table.append(at::full({B}, time, at::kLong), {{"x", at::full({B, 1, 4}, static_cast<double>(time))}});
}

}  // namespace lapse
