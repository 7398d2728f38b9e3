#include "lapse/tasks/streams.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"

namespace lapse {

TaskStreams::TaskStreams(const DrawStream& draw, const std::string& task, int64_t batch, Random random) {
  for (int64_t b = 0; b < batch; ++b) streams_.push_back(draw(Random(random.next(), task)));
}

void TaskStreams::skip(int64_t tokens) {
  for (auto& stream : streams_) stream->skip(tokens);
  position_ += tokens;
}

TokenBlock TaskStreams::next(int64_t length) {
  TokenBlock block{.batch = std::ssize(streams_), .length = length, .restart = position_ == 0, .answers = true};
  for (auto& stream : streams_) stream->next(block);
  position_ += length;
  return block;
}

TrainingTaskStreams::TrainingTaskStreams(DrawStream draw, std::string task, int64_t batch, int64_t block, Random random)
    : block_(block),
      fresh_([draw = std::move(draw), task = std::move(task), batch, random = std::move(random)] {
        return TaskStreams(draw, task, batch, random);
      }),
      streams_(fresh_()) {}

void TrainingTaskStreams::set_state(const State& state) {
  if (state.position < 0 || state.position % block_ != 0)
    fail(fmt::format("cannot resume at token {} of the streams with block = {}", state.position, block_));
  streams_ = fresh_();
  streams_.skip(state.position);
}

bool EvaluationTaskStreams::next(TokenBlock& block) {
  if (streams_.position() == tokens_) return false;
  block = streams_.next(std::min(block_, tokens_ - streams_.position()));
  return true;
}

}  // namespace lapse
