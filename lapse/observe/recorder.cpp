#include "lapse/observe/recorder.h"

#include <ATen/core/grad_mode.h>

#include <limits>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/model/likelihood.h"
#include "lapse/ops/aten.h"

namespace lapse {
void TextRecorder::token(const SeenToken& seen) {
  rows_.add(seen.reports, seen.memory);
  record.tokens.push_back(seen.token);
}

void TextRecorder::restart() {
  end_stream();
  memory_ = model_.begin(1, Stored::projections);
  rows_.restart();
  record.begins.push_back(std::ssize(record.tokens));
}

void TextRecorder::read(int64_t token, int64_t target) {
  const at::NoGradGuard no_grad;
  const auto one = [&](int64_t x) { return at::full({1, 1}, x, memory_.clock.options()); };
  BlockOptions how = wants();
  how.target = one(target), how.answers = true;
  const auto y = model_.forward(one(token), memory_, how);
  this->token({static_cast<int32_t>(token), y.reports, memory_});
  const Likelihood& found = y.likelihood;
  const double nats = found.nats.item<double>();
  record.nats.push_back(target == kUnscored ? std::numeric_limits<double>::quiet_NaN() : nats);
  next_ = target == kUnscored ? -1 : static_cast<int32_t>(target);
  if (target == kUnscored) return;
  require_finite(nats);
  record.score.nats += nats, ++record.score.scored;
  record.score.right += found.right.sum().item<int64_t>();
}

void TextRecorder::end_stream() {
  if (record.begins.empty()) return;
  record.ends.push_back(next_);
  rows_.end(memory_);
}

TextRecord record_memory(Transformer& model, EvaluationBlocks& blocks, const RecorderOptions& options) {
  TextRecorder recorder(model);
  TextRecord& record = recorder.record;
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
