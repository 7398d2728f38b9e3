#include "lapse/train/prediction.h"

#include <fmt/format.h>

#include <map>

#include "lapse/core/error.h"
#include "lapse/train/objectives.h"
#include "lapse/train/shares.h"

namespace lapse {
namespace {

/// Where a feed's state says Source::checksum.
std::string text_key(const std::string& part) { return part == "train" ? "text" : part + "_text"; }

class BlockFeed : public Feed {
 public:
  /// The source must outlive the feed.
  BlockFeed(Source& source, const TrainConfig& train)
      : source_(source), blocks_(source.training(train.batch, train.block, Random(train.seed, "text"))) {}

  Update update(Learner& learner, bool observe) override {
    const Update made = learner.update(blocks_->next(), observe);
    if (blocks_->state().restart) learner.restart();  // a checkpoint has no memory that is not read again
    return made;
  }

  Json state() const override {
    const auto position = blocks_->state();
    return {{"position", position.position},        {"pass", position.pass},
            {"restart", position.restart},          {"random", position.random_counter},
            {text_key("train"), checksum("train")}, {text_key("valid"), checksum("valid")},
            {text_key("test"), checksum("test")}};
  }

  void restore(const JsonObject& state, const Columns& tensors) override {
    if (!tensors.empty())
      fail(fmt::format("there is no place in the run for its tensor 'feed.{}'", tensors.begin()->first));
    if (state.counter(text_key("train")) != checksum("train"))
      fail("the run was trained on another text than this one; was the file changed?");
    for (const auto& [part, what] : {std::pair("valid", "was validated on"), {"test", "is to be tested on"}})
      if (checksum(part) != 0 && is_another_text(state, part, checksum(part)))
        fail(fmt::format("the run {} another text than this one; was the file changed?", what));
    blocks_->set_state(
        {state.whole("position", 0), state.whole("pass", 0), state.truth("restart"), state.counter("random")});
  }

 private:
  /// Made once: every checkpoint says them.
  uint32_t checksum(const std::string& part) const {
    const auto known = checksums_.find(part);
    return known != checksums_.end() ? known->second : checksums_[part] = source_.checksum(part);
  }

  Source& source_;
  std::unique_ptr<TrainingBlocks> blocks_;
  mutable std::map<std::string, uint32_t> checksums_;
};

class PredictionProblem : public Problem {
 public:
  PredictionProblem(const Config& config, std::unique_ptr<Source> source)
      : config_(config), source_(std::move(source)) {}

  const Vocabulary& vocabulary() const override { return source_->vocabulary(); }
  std::string describe() const override { return source_->describe(); }
  const char* unit() const override { return "token"; }
  std::unique_ptr<Objective> objective() const override { return objective_of(config_).make(config_); }
  std::unique_ptr<Feed> feed(Group&) override { return std::make_unique<BlockFeed>(*source_, config_.train); }
  bool validates() const override { return source_->has("valid"); }

  void require_validation() const override {
    const int64_t most = config_.train.validation_blocks;
    if (any_scored(*blocks(), most)) return;
    if (most == 0) fail("nothing in it is scored; name a longer text");
    fail(fmt::format("nothing in its first {} blocks is scored; raise train.validation_blocks", most));
  }

  EvaluationResult validate(Transformer& model, Group& group) const override {
    return evaluate(model, *blocks(),
                    {.max_blocks = config_.train.validation_blocks,
                     .any_loss = true,
                     .parts = validation_parts_of(config_.train, group),
                     .group = group});
  }

  std::vector<Figure> figures(const Score& score) const override { return source_->figures(score); }

 private:
  std::unique_ptr<EvaluationBlocks> blocks() const {
    return source_->evaluation("valid", config_.train.evaluated(), config_.train.block, /*drop_partial=*/true);
  }

  const Config& config_;
  std::unique_ptr<Source> source_;
};

}  // namespace

bool is_another_text(const JsonObject& feed, const std::string& part, uint32_t checksum) {
  const uint64_t before = feed.has(text_key(part)) ? feed.counter(text_key(part)) : 0;
  return before != 0 && before != checksum;
}

std::unique_ptr<Problem> prediction_problem(const Config& config, const Checkpoint* from) {
  std::unique_ptr<Source> source;
  if (config.task())
    source = config.task()->open();
  else
    source = std::make_unique<TextSource>(config.data, from ? &from->vocabulary() : nullptr);
  return std::make_unique<PredictionProblem>(config, std::move(source));
}

}  // namespace lapse
