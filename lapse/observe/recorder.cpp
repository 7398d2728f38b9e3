#include "lapse/observe/recorder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/train/evaluate.h"

namespace lapse {
namespace {

using at::Tensor;

/// The tokens whose rows the table of one stream holds, as places in the record; initial and pooled rows, which stand
/// for no token, have times below 0. Rows are sorted by time, so that those come first.
struct Held {
  std::vector<int64_t> tokens;
  int64_t first_row = 0;

  Held(const MemoryTable& table, int64_t begin) {
    const Tensor times = table.rows() > 0 ? table.time().contiguous() : at::empty({0}, at::kLong);
    const auto* t = times.const_data_ptr<int64_t>();
    first_row = std::lower_bound(t, t + table.rows(), 0) - t;
    for (int64_t i = first_row; i < table.rows(); ++i) tokens.push_back(begin + t[i]);
  }
};

class Recorder {
 public:
  explicit Recorder(Transformer& model) : model_(model) { record.layers.resize(model.layers().size()); }

  void restart() {
    end_stream();
    memory_ = model_.begin(1, false);
    begin_ = std::ssize(record.tokens);
    record.begins.push_back(begin_);
  }

  void read(int64_t token, int64_t target) {
    const auto place = std::ssize(record.tokens);
    for (size_t l = 0; l < record.layers.size(); ++l)  // this token's query comes while they are still there
      for (const int64_t i : Held(memory_.layers[l], begin_).tokens) ++record.layers[l].held[i];
    const auto y = model_.forward(at::full({1, 1}, token, at::kLong), memory_, {.observe = true});
    record.tokens.push_back(static_cast<int32_t>(token));
    for (size_t l = 0; l < record.layers.size(); ++l) add(record.layers[l], place, y.reports[l], l);
    last_ = target;
    const auto scored = score_positions(y.logits, at::full({1, 1}, target, at::kLong));
    const double nats = scored.loss.item<double>();
    record.nats.push_back(target == kUnscored ? std::numeric_limits<double>::quiet_NaN() : nats);
    if (target == kUnscored) return;
    record.score.nats += nats, ++record.score.scored;
    record.score.right += scored.right.sum().item<int64_t>();
  }

  void end_stream() {
    if (record.begins.empty()) return;
    record.ends.push_back(last_ == kUnscored ? -1 : static_cast<int32_t>(last_));
    for (size_t l = 0; l < record.layers.size(); ++l)
      for (const int64_t i : Held(memory_.layers[l], begin_).tokens) record.layers[l].there[i] = 1;
  }

  MemoryRecord record;

 private:
  /// What became of the table after the query of the token at `place`.
  void add(LayerRecord& layer, int64_t place, const LayerReport& report, size_t number) {
    layer.held.push_back(0), layer.there.push_back(0);
    layer.sizes.push_back(std::llround(report.memory_mean));
    // The token's own row may be gone already: what was told of it is in the report.
    for (const auto& [name, values] : report.told) layer.told[name].push_back(values.item<double>());
    const MemoryTable& table = memory_.layers[number];
    const Held held(table, begin_);
    for (const auto& [name, values] : model_.layers()[number].tell(table)) {
      const Tensor told = values.detach().to(at::kDouble).contiguous();
      const double* value = told.const_data_ptr<double>() + held.first_row;
      for (const int64_t i : held.tokens) layer.told.at(name)[i] = *value++;
    }
    TORCH_CHECK(std::ranges::all_of(layer.told, [&](const auto& told) { return std::ssize(told.second) == place + 1; }),
                "a method must tell the same of every row");
  }

  Transformer& model_;
  ModelMemory memory_;
  int64_t begin_ = 0, last_ = kUnscored;
};

}  // namespace

int64_t LayerRecord::largest() const { return sizes.empty() ? 0 : *std::ranges::max_element(sizes); }

double LayerRecord::mean() const {
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(std::max<size_t>(sizes.size(), 1));
}

MemoryRecord record_memory(Transformer& model, EvaluationBlocks& blocks, const RecorderOptions& options) {
  at::NoGradGuard no_grad;
  Recorder recorder(model);
  MemoryRecord& record = recorder.record;
  const auto full = [&] { return options.tokens > 0 && std::ssize(record.tokens) >= options.tokens; };
  TokenBlock block;
  while (!full() && !record.stopped && blocks.next(block)) {
    TORCH_CHECK(block.batch == 1, "memory is recorded of one stream, or one window at a time");
    if (block.restart || record.begins.empty()) recorder.restart();
    record.score.bytes += block.bytes;
    for (int64_t i = 0; i < block.length && !full() && !record.stopped; ++i) {
      recorder.read(block.input[i], block.target[i]);
      if (options.progress) options.progress(std::ssize(record.tokens));
      record.stopped = interrupted();
    }
  }
  if (record.tokens.empty()) fail("there is nothing to read");
  recorder.end_stream();
  return std::move(record);
}

}  // namespace lapse
