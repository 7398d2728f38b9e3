#include "lapse/nn/block.h"

#include <algorithm>

#include "lapse/memory/samples.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/waiting.h"

namespace lapse {

using at::Tensor;

Tensor BlockOptions::at_places(const Tensor& x) const {
  return places.defined() ? x.flatten(0, 1).index_select(0, places) : x;
}

BlockTimes::BlockTimes(const Tensor& clock, int64_t length, const Tensor& given)
    : start(clock), time(clock.unsqueeze(1)) {
  static_assert(static_cast<int>(RowKind::token) == 0 && static_cast<int>(RowKind::first) == 1);
  if (length == 1 && !given.defined() && clock.is_cpu() && clock.is_contiguous()) {  // without libtorch's operators
    kind = empty_rows({clock.size(0), 1}, at::kByte);
    const auto* now = clock.const_data_ptr<int64_t>();
    std::transform(now, now + clock.numel(), kind.mutable_data_ptr<uint8_t>(), [](int64_t t) { return t == 0; });
    return;
  }
  if (length != 1) time = time + at::arange(length, clock.options());
  Tensor first = time == 0;  // of a stream that has read nothing
  const Tensor begins = given.defined() ? sent(given, clock.device()) : given;
  if (begins.defined()) first = at::logical_or(first, begins);
  if (begins.defined() && length == 1) {
    const Tensor marks = given.to(at::kCPU).contiguous();
    for (int64_t b = 0; b < marks.numel(); ++b)
      if (marks.const_data_ptr<bool>()[b]) begun.push_back(b);
  } else if (begins.defined()) {
    const Tensor at_begin =
        at::constant_pad_nd(time.masked_fill(at::logical_not(begins), kNever), {0, 1}, at::Scalar(kNever));
    next_ = std::get<0>(at::cummin(at_begin.flip(1), 1)).flip(1);
  }
  kind = first.to(at::kByte);
}

const Tensor& BlockTimes::start_on_host() const {
  if (!on_host_.defined()) on_host_ = start.to(at::kCPU).contiguous();
  return on_host_;
}

Tensor BlockTimes::ended(const MemoryTable& table) const {
  if (!next_.defined()) return {};
  const Tensor sample = table.sample();
  // Of the block's row at column c the columns after it count, of older rows all.
  const Tensor column = (table.time() - of_rows(table, start) + 1).clamp(0, next_.size(1) - 1);
  return next_.flatten().index_select(0, sample * next_.size(1) + column);
}

void count(std::vector<LayerReport>& reports) {
  std::vector<Tensor> all;
  for (const auto& report : reports) all.push_back(report.counts);
  if (all.empty()) return;
  const Tensor read = at::stack(all).to(at::kCPU);
  const auto* next = read.const_data_ptr<int64_t>();
  for (auto& report : reports) {
    report.memory_sum = static_cast<double>(next[0]), report.memory_max = static_cast<double>(next[1]);
    report.queries = next[2], report.readable = next[3], report.deleted = next[4];
    report.counts.reset();
    next += 5;
  }
}

void LayerReport::join(const LayerReport& next) {
  memory_sum += next.memory_sum, queries += next.queries;
  memory_max = std::max(memory_max, next.memory_max);
  readable = next.readable, deleted = next.deleted;  // of the last timestep, as its rows are
  rows = next.rows;
  if (sizes.defined()) sizes = lapse::cat({sizes, next.sizes}, 1);
  time = next.time, kind = next.kind, until = next.until;
  for (auto& [name, values] : told) values = lapse::cat({values, next.told.at(name)}, 1);
}

}  // namespace lapse
