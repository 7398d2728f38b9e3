// Tasks of streams without end: several are read side by side, each drawn from a seed of its own.
#pragma once

#include <functional>

#include "lapse/tasks/task.h"

namespace lapse {

/// One generated stream.
class TaskStream {
 public:
  virtual ~TaskStream() = default;
  virtual void skip(int64_t tokens) = 0;
  /// Appends the next block.length inputs, and what there is to predict and what is asked at each.
  virtual void next(TokenBlock& block) = 0;
};
using DrawStream = std::function<std::unique_ptr<TaskStream>(Random)>;

/// `batch` streams, whose seeds come from `random`, at the same place.
class TaskStreams {
 public:
  TaskStreams(const DrawStream& draw, const std::string& task, int64_t batch, Random random);

  void skip(int64_t tokens);
  TokenBlock next(int64_t length);  ///< its `restart` is set at the streams' beginning
  int64_t position() const { return position_; }

 private:
  std::vector<std::unique_ptr<TaskStream>> streams_;
  int64_t position_ = 0;
};

/// Endless blocks. They resume by drawing the streams again.
class TrainingTaskStreams : public TrainingBlocks {
 public:
  TrainingTaskStreams(DrawStream draw, std::string task, int64_t batch, int64_t block, Random random);

  TokenBlock next() override { return streams_.next(block_); }
  State state() const override { return {streams_.position(), 0, streams_.position() == 0, 0}; }
  void set_state(const State& state) override;

 private:
  int64_t block_;
  std::function<TaskStreams()> fresh_;
  TaskStreams streams_;
};

/// The first `tokens` of each stream. The last block may be shorter.
class EvaluationTaskStreams : public EvaluationBlocks {
 public:
  EvaluationTaskStreams(TaskStreams streams, int64_t tokens, int64_t block)
      : streams_(std::move(streams)), tokens_(tokens), block_(block) {}

  bool next(TokenBlock& block) override;
  int64_t blocks() const override { return (tokens_ + block_ - 1) / block_; }

 private:
  TaskStreams streams_;
  int64_t tokens_, block_;
};

}  // namespace lapse
