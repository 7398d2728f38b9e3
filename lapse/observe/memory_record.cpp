#include "lapse/observe/memory_record.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// use(row, time) for the rows of one stream that stand for steps.
template <class Use>
void for_steps(const Tensor& times, const Tensor& kinds, Use use) {
  const Tensor all = times.to(at::kCPU).contiguous(), steps = is_token(kinds.to(at::kCPU));
  for (int64_t row = 0; row < all.numel(); ++row)
    if (steps.const_data_ptr<bool>()[row]) use(row, all.const_data_ptr<int64_t>()[row]);
}

}  // namespace

int64_t LayerRecord::largest() const { return sizes.empty() ? 0 : *std::ranges::max_element(sizes); }

double LayerRecord::mean() const {
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(std::max<size_t>(sizes.size(), 1));
}

MemoryRecorder::MemoryRecorder(const Transformer& model, MemoryRecord& record) {
  record.layers.resize(model.layers().size());
  for (size_t l = 0; l < record.layers.size(); ++l)
    layers_.push_back({.attention = model.layers()[l].attention(), .record = record.layers[l]});
}

void MemoryRecorder::restart() {
  for (auto& layer : layers_) layer.begin = std::ssize(layer.record.held), layer.until.clear();
}

void MemoryRecorder::add(const std::vector<LayerReport>& reports, const ModelMemory& memory) {
  for (size_t l = 0; l < layers_.size(); ++l) layers_[l].add(reports[l], memory.layers[l]);
}

void MemoryRecorder::end(const ModelMemory& memory) {
  for (size_t l = 0; l < layers_.size(); ++l) layers_[l].end(memory.layers[l]);
}

void MemoryRecorder::Layer::add(const LayerReport& report, const MemoryTable& table) {
  const auto now = std::ssize(until);
  record.held.push_back(0), record.there.push_back(0), until.push_back(0);
  record.sizes.push_back(std::llround(report.memory_mean()));
  const Tensor ends = report.until.to(at::kCPU).contiguous();
  for_steps(report.time, report.kind, [&](int64_t row, int64_t time) {
    until[time] = ends.const_data_ptr<int64_t>()[row];
    if (time < now && now < until[time]) ++record.held[begin + time];
  });
  // The step's own row may be gone already: what was told of it is in the report.
  for (const auto& [name, values] : report.told) record.told[name].push_back(values.item<double>());
  if (table.rows() == 0) return;
  for (const auto& [name, values] : attention.tell(table)) {
    const Tensor told = values.detach().to(at::kCPU, at::kDouble).contiguous();
    auto& known = record.told.at(name);
    for_steps(table.time(), table.kind(),
              [&](int64_t row, int64_t time) { known[begin + time] = told.const_data_ptr<double>()[row]; });
  }
}

void MemoryRecorder::Layer::end(const MemoryTable& table) {
  if (table.rows() == 0) return;
  for_steps(table.time(), table.kind(),
            [&](int64_t, int64_t time) { record.there[begin + time] = std::ssize(until) < until[time]; });
}

}  // namespace lapse
