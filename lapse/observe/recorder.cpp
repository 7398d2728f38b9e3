#include "lapse/observe/recorder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/model/likelihood.h"

namespace lapse {
namespace {

using at::Tensor;

/// use(row, time) for the rows of one stream that stand for tokens.
template <class Use>
void for_tokens(const Tensor& times, const Tensor& kinds, Use use) {
  const Tensor all = times.to(at::kCPU).contiguous(), tokens = is_token(kinds.to(at::kCPU));
  for (int64_t row = 0; row < all.numel(); ++row)
    if (tokens.const_data_ptr<bool>()[row]) use(row, all.const_data_ptr<int64_t>()[row]);
}

/// One layer as it is observed.
class LayerRecorder {
 public:
  LayerRecorder(const Attention& layer, LayerRecord& record) : layer_(layer), record_(record) {}

  void restart() { begin_ = std::ssize(record_.held), until_.clear(); }

  /// The query of the next token has been answered; `table` is what it left.
  void add(const LayerReport& report, const MemoryTable& table) {
    const auto now = std::ssize(until_);
    record_.held.push_back(0), record_.there.push_back(0), until_.push_back(0);
    record_.sizes.push_back(std::llround(report.memory_mean()));
    const Tensor until = report.until.to(at::kCPU).contiguous();
    for_tokens(report.time, report.kind, [&](int64_t row, int64_t time) {
      until_[time] = until.const_data_ptr<int64_t>()[row];
      if (time < now && now < until_[time]) ++record_.held[begin_ + time];
    });
    // The token's own row may be gone already: what was told of it is in the report.
    for (const auto& [name, values] : report.told) record_.told[name].push_back(values.item<double>());
    if (table.rows() == 0) return;
    for (const auto& [name, values] : layer_.tell(table)) {
      const Tensor told = values.detach().to(at::kCPU, at::kDouble).contiguous();
      auto& known = record_.told.at(name);
      for_tokens(table.time(), table.kind(),
                 [&](int64_t row, int64_t time) { known[begin_ + time] = told.const_data_ptr<double>()[row]; });
    }
  }

  void end_stream(const MemoryTable& table) {
    if (table.rows() == 0) return;
    for_tokens(table.time(), table.kind(),
               [&](int64_t, int64_t time) { record_.there[begin_ + time] = std::ssize(until_) < until_[time]; });
  }

 private:
  const Attention& layer_;
  LayerRecord& record_;
  int64_t begin_ = 0;           // of the stream, in the record
  std::vector<int64_t> until_;  // of each of the stream's tokens, the time of the first query that cannot read its row
};

class Recorder {
 public:
  explicit Recorder(Transformer& model) : model_(model) {
    record.layers.resize(model.layers().size());
    for (size_t l = 0; l < record.layers.size(); ++l)
      layers_.emplace_back(model.layers()[l].attention(), record.layers[l]);
  }

  void restart() {
    end_stream();
    memory_ = model_.begin(1, Stored::projections);
    for (auto& layer : layers_) layer.restart();
    record.begins.push_back(std::ssize(record.tokens));
  }

  void read(int64_t token, int64_t target) {
    const auto one = [&](int64_t x) { return at::full({1, 1}, x, memory_.clock.options()); };
    const auto y = model_.forward(one(token), memory_, {.observe = true, .target = one(target), .answers = true});
    for (size_t l = 0; l < layers_.size(); ++l) layers_[l].add(y.reports[l], memory_.layers[l]);
    const Likelihood& found = y.likelihood;
    const double nats = found.nats.item<double>();
    record.tokens.push_back(static_cast<int32_t>(token));
    record.nats.push_back(target == kUnscored ? std::numeric_limits<double>::quiet_NaN() : nats);
    next_ = target == kUnscored ? -1 : static_cast<int32_t>(target);
    if (target == kUnscored) return;
    require_finite(nats);
    record.score.nats += nats, ++record.score.scored;
    record.score.right += found.right.sum().item<int64_t>();
  }

  void end_stream() {
    if (record.begins.empty()) return;
    record.ends.push_back(next_);
    for (size_t l = 0; l < layers_.size(); ++l) layers_[l].end_stream(memory_.layers[l]);
  }

  MemoryRecord record;

 private:
  Transformer& model_;
  ModelMemory memory_;
  std::vector<LayerRecorder> layers_;
  int32_t next_ = -1;
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
