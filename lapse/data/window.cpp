#include "lapse/data/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// The windows that begin at `starts`: BOS stands for what came before.
TokenBlock windows(const Tokens& tokens, int32_t bos, const std::vector<int64_t>& starts, int64_t length) {
  TokenBlock out{.batch = static_cast<int64_t>(starts.size()), .length = length, .restart = true, .starts = starts};
  for (const int64_t start : starts)
    for (int64_t i = 0; i < length; ++i) {
      out.input.push_back(i == 0 ? bos : tokens[start + i - 1]);
      out.target.push_back(tokens[start + i]);
      out.bytes += tokens.text_bytes(start + i);
    }
  return out;
}

void require_window(const Tokens& tokens, int64_t least) {
  if (tokens.size() == 0) fail("this part of the text is empty");
  if (tokens.size() < least)
    fail(
        fmt::format("the text has {} tokens, but a window needs {}; use a smaller block (train.block; `--block` of "
                    "`lapse eval`, `--tokens` of `lapse inspect --matrix`), or more text",
                    tokens.size(), least));
}

}  // namespace

TrainingWindows::TrainingWindows(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length, Random random)
    : tokens_(tokens), bos_(bos), batch_(batch), length_(length), random_(std::move(random)) {
  require_window(tokens, length);
}

TokenBlock TrainingWindows::next() {
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < batch_; ++b)
    starts.push_back(static_cast<int64_t>(random_.below(tokens_.size() - length_ + 1)));
  return windows(tokens_, bos_, starts, length_);
}

TrainingWindows::State TrainingWindows::state() const { return {0, 0, true, random_.counter()}; }

void TrainingWindows::set_state(const State& state) { random_.set_counter(state.random_counter); }

EvaluationWindows::EvaluationWindows(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length,
                                     bool drop_partial)
    : tokens_(tokens), bos_(bos), batch_(batch), length_(length), drop_partial_(drop_partial) {
  require_window(tokens, drop_partial ? length : 1);
}

bool EvaluationWindows::next(TokenBlock& block) {
  const int64_t whole = (tokens_.size() - position_) / length_;
  const int64_t length = whole > 0 ? length_ : tokens_.size() - position_;
  if (length == 0 || (drop_partial_ && whole == 0)) return false;
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < std::clamp<int64_t>(whole, 1, batch_); ++b, position_ += length) starts.push_back(position_);
  block = windows(tokens_, bos_, starts, length);
  return true;
}

int64_t EvaluationWindows::blocks() const {
  const int64_t whole = tokens_.size() / length_, rest = tokens_.size() % length_;
  return (whole + batch_ - 1) / batch_ + (rest > 0 && !drop_partial_ ? 1 : 0);
}

}  // namespace lapse
