#include "lapse/tasks/sequences.h"

#include <fmt/format.h>

#include <algorithm>

namespace lapse {
namespace {

TokenBlock draw_block(const DrawSequence& draw, int32_t padding, int64_t batch, Random& random) {
  std::vector<Sequence> sequences;
  TokenBlock block{.batch = batch, .restart = true, .answers = true};
  for (int64_t b = 0; b < batch; ++b) {
    sequences.push_back(draw(random));
    block.lengths.push_back(std::ssize(sequences.back().input));
    block.length = std::max(block.length, block.lengths.back());
  }
  for (Sequence& sequence : sequences) {
    sequence.input.resize(block.length, padding);
    sequence.target.resize(block.length, kUnscored);
    block.input.insert(block.input.end(), sequence.input.begin(), sequence.input.end());
    block.target.insert(block.target.end(), sequence.target.begin(), sequence.target.end());
  }
  return block;
}

/// The task must outlive the source.
class SequenceSource : public TaskSource {
 public:
  SequenceSource(const SequenceTask& task, int64_t test_seed, int64_t valid, int64_t test)
      : TaskSource(task.name(), Vocabulary::of_task(task.tokens(), /*has_bos=*/true), test_seed),
        task_(task),
        valid_(valid),
        test_(test) {}

  std::string describe() const override {
    return fmt::format("task {}: fresh sequences of up to {} tokens of {} kinds, {} to validate", name(),
                       task_.window(), vocabulary().size(), valid_);
  }
  std::unique_ptr<TrainingBlocks> training(int64_t batch, int64_t, Random random) override {
    return std::make_unique<TrainingSequences>([this](Random& r) { return task_.draw(r); }, vocabulary().bos(), batch,
                                               std::move(random));
  }
  std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t, bool) override {
    Random random = random_of(part);
    DrawSequence draw = task_.drawer(random);
    return std::make_unique<EvaluationSequences>(std::move(draw), vocabulary().bos(), count(part), batch,
                                                 std::move(random));
  }
  int64_t streams(const std::string& part, int64_t, int64_t most) const override { return std::min(count(part), most); }

 private:
  int64_t count(const std::string& part) const { return part == "valid" ? valid_ : test_; }

  const SequenceTask& task_;
  int64_t valid_, test_;
};

}  // namespace

TrainingSequences::TrainingSequences(DrawSequence draw, int32_t padding, int64_t batch, Random random)
    : draw_(std::move(draw)), padding_(padding), batch_(batch), random_(std::move(random)) {}

TokenBlock TrainingSequences::next() { return draw_block(draw_, padding_, batch_, random_); }

EvaluationSequences::EvaluationSequences(DrawSequence draw, int32_t padding, int64_t count, int64_t batch,
                                         Random random)
    : draw_(std::move(draw)), padding_(padding), count_(count), batch_(batch), random_(std::move(random)) {}

bool EvaluationSequences::next(TokenBlock& block) {
  if (done_ == count_) return false;
  block = draw_block(draw_, padding_, std::min(batch_, count_ - done_), random_);
  done_ += block.batch;
  return true;
}

Fields SequenceTask::fields() {
  return {
      field("valid_sequences", valid_sequences_, "size of the validation set").in(1, 1e9).unit("sequences"),
      field("test_sequences", test_sequences_, "size of the test set").in(1, 1e9).unit("sequences"),
  };
}

DrawSequence SequenceTask::drawer(Random&) const {
  return [this](Random& random) { return draw(random); };
}

std::unique_ptr<Source> SequenceTask::open() const {
  return std::make_unique<SequenceSource>(*this, test_seed_, valid_sequences_, test_sequences_);
}

}  // namespace lapse
