#include "lapse/data/stream.h"

#include <type_traits>

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// Tokens per stream.
int64_t cut_streams(const Tokens& tokens, int64_t batch, int64_t block) {
  if (batch < 1 || block < 1) fail(fmt::format("batch = {} and block = {} must be at least 1", batch, block));
  return tokens.size() / batch;
}

void fill(TokenBlock& out, const Tokens& tokens, const Labels* labels, int64_t batch, int64_t length,
          int64_t stream_length, int64_t position) {
  out.batch = batch;
  out.length = length;
  out.bytes = {};
  out.answers = labels != nullptr;
  out.input.resize(batch * length);
  out.target.resize(batch * length);
  out.starts.clear();
  for (int64_t row = 0; row < batch; ++row) {
    int64_t from = row * stream_length + position;
    if (!labels) out.starts.push_back(from + 1);
    for (int64_t i = 0; i < length; ++i) {
      out.input[row * length + i] = tokens[from + i];
      out.target[row * length + i] = labels ? labels->at(from + i) : tokens[from + i + 1];
      if (!labels) out.bytes += tokens.text_bytes(from + i + 1);
    }
  }
}

}  // namespace

TokenBlock TokenBlock::part(int64_t first, int64_t count) const {
  const auto some = [&](const auto& all) {
    const int64_t each = std::ssize(all) / batch;
    return std::decay_t<decltype(all)>(all.begin() + first * each, all.begin() + (first + count) * each);
  };
  return {.batch = count,
          .length = length,
          .input = some(input),
          .target = some(target),
          .restart = restart,
          .lengths = some(lengths),
          .bytes = first == 0 ? bytes : TextBytes{},
          .answers = answers,
          .asked = some(asked),
          .source = some(source),
          .starts = some(starts)};
}

TrainingStreams::TrainingStreams(const Tokens& tokens, int64_t batch, int64_t block, Random random,
                                 const Labels* labels)
    : tokens_(tokens),
      labels_(labels),
      batch_(batch),
      block_(block),
      stream_length_(cut_streams(tokens, batch, block)),
      random_(std::move(random)) {
  if (stream_length_ < 2 * block + 1) {
    fail(
        fmt::format("the training text has {0} tokens, but {1} streams of 2 blocks of {2} and a token more need "
                    "{1} x (2 x {2} + 1) = {3}; lower train.batch or train.block, or give a longer text",
                    tokens.size(), batch, block, batch * (2 * block + 1)));
  }
  position_ = static_cast<int64_t>(random_.below(stream_length_ - block_));
}

TokenBlock TrainingStreams::next() {
  TokenBlock out;
  fill(out, tokens_, labels_, batch_, block_, stream_length_, position_);
  out.restart = restart_;
  position_ += block_;
  restart_ = position_ + block_ + 1 > stream_length_;
  if (restart_) {
    position_ = static_cast<int64_t>(random_.below(block_));
    ++pass_;
  }
  return out;
}

TrainingStreams::State TrainingStreams::state() const { return {position_, pass_, restart_, random_.counter()}; }

void TrainingStreams::set_state(const State& state) {
  if (state.position < 0 || state.position >= stream_length_ - block_) {
    fail(fmt::format("cannot resume at token {} of streams of {} tokens with block = {}: another text, batch or block",
                     state.position, stream_length_, block_));
  }
  position_ = state.position;
  pass_ = state.pass;
  restart_ = state.restart;
  random_.set_counter(state.random_counter);
}

EvaluationStreams::EvaluationStreams(const Tokens& tokens, int64_t batch, int64_t block, bool drop_partial,
                                     const Labels* labels)
    : tokens_(tokens),
      labels_(labels),
      batch_(batch),
      block_(block),
      stream_length_(cut_streams(tokens, batch, block)),
      predictions_(stream_length_ - (labels ? 0 : 1)),
      drop_partial_(drop_partial) {
  int64_t least = drop_partial ? block + 1 : 2;
  if (tokens.size() == 0) fail("this part of the text is empty");
  if (stream_length_ < least) {
    fail(fmt::format(
        "the text has {} tokens, but {} streams of at least {} need {}; {}", tokens.size(), batch, least, batch * least,
        batch > 1 && drop_partial ? "use fewer streams (train.validation_streams, or train.batch) or a smaller block"
        : batch > 1               ? "read fewer streams at a time"
        : drop_partial            ? "use a smaller block (`--tokens` of `lapse inspect --matrix`), or more text"
                                  : "give a longer text"));
  }
}

bool EvaluationStreams::next(TokenBlock& block) {
  int64_t length = std::min(block_, predictions_ - position_);
  if (length == 0 || (drop_partial_ && length < block_)) return false;
  fill(block, tokens_, labels_, batch_, length, stream_length_, position_);
  block.restart = position_ == 0;
  position_ += length;
  return true;
}

int64_t EvaluationStreams::blocks() const {
  return drop_partial_ ? predictions_ / block_ : (predictions_ + block_ - 1) / block_;
}

}  // namespace lapse
