// Tasks of independent sequences, drawn as they are needed: each starts from empty memory, padded on the right.
#pragma once

#include <functional>

#include "lapse/tasks/task.h"

namespace lapse {

/// One sequence, BOS first: targets as in TokenBlock, as many as inputs.
struct Sequence {
  std::vector<int64_t> input, target;
};
using DrawSequence = std::function<Sequence(Random&)>;

/// Endless blocks of `batch` fresh sequences, as long as the longest of them.
class TrainingSequences : public TrainingBlocks {
 public:
  TrainingSequences(DrawSequence draw, int32_t padding, int64_t batch, Random random);

  TokenBlock next() override;
  State state() const override { return {0, 0, true, random_.counter()}; }
  void set_state(const State& state) override { random_.set_counter(state.random_counter); }

 private:
  DrawSequence draw_;
  int32_t padding_;
  int64_t batch_;
  Random random_;
};

/// `count` sequences, `batch` at a time. They do not depend on `batch`.
class EvaluationSequences : public EvaluationBlocks {
 public:
  EvaluationSequences(DrawSequence draw, int32_t padding, int64_t count, int64_t batch, Random random);

  bool next(TokenBlock& block) override;
  int64_t blocks() const override { return (count_ + batch_ - 1) / batch_; }

 private:
  DrawSequence draw_;
  int32_t padding_;
  int64_t count_, batch_, done_ = 0;
  Random random_;
};

/// The options that such tasks share.
class SequenceTask : public TaskOptions {
 public:
  Fields fields() override;
  std::unique_ptr<Source> open() const override;

  /// The task's tokens; BOS is the id after them.
  virtual std::vector<std::string> tokens() const = 0;
  virtual Sequence draw(Random& random) const = 0;
  /// What draws the sequences of a validation or test set, all from `random`.
  virtual DrawSequence drawer(Random& random) const;

 protected:
  int64_t valid_sequences_ = 512, test_sequences_ = 2048;
};

}  // namespace lapse
