#include "lapse/train/prediction.h"

#include <fmt/format.h>

#include <map>

#include "lapse/core/error.h"
#include "lapse/train/objectives.h"
#include "lapse/train/shares.h"

namespace lapse {
namespace {

/// Where a feed's state says Source::checksum, and Source::bytes_checksum.
std::string text_key(const std::string& part) { return part == "train" ? "text" : part + "_text"; }
std::string bytes_key(const std::string& part) { return text_key(part) + "_bytes"; }

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
    Json state = {{"position", position.position},
                  {"pass", position.pass},
                  {"restart", position.restart},
                  {"random", position.random_counter}};
    for (const char* part : {"train", "valid", "test"})
      state[text_key(part)] = checksums(part).ids, state[bytes_key(part)] = checksums(part).bytes;
    return state;
  }

  void restore(const JsonObject& state, const Columns& tensors) override {
    if (!tensors.empty())
      fail(fmt::format("there is no place in the run for its tensor 'feed.{}'", tensors.begin()->first));
    const TextChecksums train = checksums("train");
    if (state.counter(text_key("train")) != train.ids || is_another_text(state, "train", train))
      fail("the run was trained on another text than this one; was the file changed?");
    for (const auto& [part, what] : {std::pair("valid", "was validated on"), {"test", "is to be tested on"}})
      if (checksums(part).ids != 0 && is_another_text(state, part, checksums(part)))
        fail(fmt::format("the run {} another text than this one; was the file changed?", what));
    blocks_->set_state(
        {state.whole("position", 0), state.whole("pass", 0), state.truth("restart"), state.counter("random")});
  }

 private:
  /// Made once: every checkpoint says them.
  TextChecksums checksums(const std::string& part) const {
    const auto known = checksums_.find(part);
    if (known != checksums_.end()) return known->second;
    return checksums_[part] = {source_.checksum(part), source_.bytes_checksum(part)};
  }

  Source& source_;
  std::unique_ptr<TrainingBlocks> blocks_;
  mutable std::map<std::string, TextChecksums> checksums_;
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

  void require_validation(const Group& group) const override {
    validation_parts_of(config_.train, group);
    const int64_t most = config_.train.validation_blocks;
    if (any_scored(*blocks(), most)) return;
    if (most == 0)
      fail("nothing in it is scored; " + (config_.task_name.empty()
                                              ? "name a longer text"
                                              : fmt::format("section [{}] has its size", config_.task_name)));
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

bool is_another_text(const JsonObject& feed, const std::string& part, const TextChecksums& now) {
  const auto known = [&](const std::string& key) { return feed.has(key) ? feed.counter(key) : 0; };
  const uint64_t ids = known(text_key(part)), bytes = known(bytes_key(part));  // older runs lack the second
  return (ids != 0 && ids != now.ids) || (bytes != 0 && bytes != now.bytes);
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
