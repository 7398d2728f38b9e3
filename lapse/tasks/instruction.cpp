// Streams of games' logs, read as a text: every word is predicted, and memory is carried without end.
//
// The metric: at each execution the model gets the true log up to "You tell the", decodes greedily to "!", and is right
// if it says the execution, with target and speaker, word by word. Decoding greedily leaves the true log at its first
// wrong word, and until then reads the same words as the true log has: so the decoded words are the right ones exactly
// if each word of the execution is the likeliest after the true words before it. That is what one reading of the true
// log tells (TokenBlock::asked); nothing is decoded, and memory is that of the true log.
#include "lapse/tasks/instruction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"
#include "lapse/tasks/instruction_game.h"
#include "lapse/tasks/streams.h"

namespace lapse {
namespace {

constexpr const char* kVillage =
#include "embedded/lapse/tasks/village.json.inc"
    ;

struct Setting {
  LightWorld world;
  InstructionWords words;
  InstructionRules rules;
};

/// One stream of games.
class LogStream : public TaskStream {
 public:
  LogStream(std::shared_ptr<const Setting> setting, Random random)
      : setting_(std::move(setting)), games_(setting_->world, setting_->words, setting_->rules, random) {}

  void skip(int64_t words) override {
    for (at_ += words; at_ > std::ssize(log_.words); games_.play(log_)) at_ -= std::ssize(log_.words), log_ = {};
  }
  void next(TokenBlock& block) override {
    while (at_ + block.length >= std::ssize(log_.words)) games_.play(log_);
    const auto word = log_.words.begin() + at_;
    block.input.insert(block.input.end(), word, word + block.length);
    block.target.insert(block.target.end(), word + 1, word + 1 + block.length);
    const auto asked = log_.asked.begin() + at_ + 1;
    block.asked.insert(block.asked.end(), asked, asked + block.length);
    at_ += block.length;
    log_.words.erase(log_.words.begin(), log_.words.begin() + at_);
    log_.asked.erase(log_.asked.begin(), log_.asked.begin() + at_);
    at_ = 0;
  }

 private:
  std::shared_ptr<const Setting> setting_;
  InstructionGames games_;
  LogText log_;
  int64_t at_ = 0;
};

class InstructionSource : public TaskSource {
 public:
  InstructionSource(const std::string& name, int64_t test_seed, Setting setting, int64_t valid, int64_t test)
      : TaskSource(name, setting.words.vocabulary(), test_seed),
        setting_(std::make_shared<Setting>(std::move(setting))),
        valid_(valid),
        test_(test) {}

  std::string describe() const override {
    return fmt::format(
        "task {}: games of {} rounds in a world of {} rooms and {} agents, {} words of chatter, a vocabulary of {}, "
        "{} words to validate",
        name(), setting_->rules.rounds, setting_->world.rooms.size(), setting_->world.agents.size(),
        setting_->words.chatter().size(), vocabulary().size(), valid_);
  }
  /// Of training only what logs can say, as earlier versions had it: their runs can be resumed. The others' tells where
  /// agents begin, too, and a run is resumed if both are as before.
  uint32_t checksum(const std::string& part) const override {
    const uint32_t said = setting_->words.checksum();
    if (part == "train") return said;
    InstructionWords::Words starts;
    for (const auto& agent : setting_->world.agents) starts.push_back(static_cast<int32_t>(agent.room));
    Tokens places(std::ssize(setting_->world.rooms));
    places.append(starts);
    return said ^ places.checksum();
  }
  std::unique_ptr<TrainingBlocks> training(int64_t batch, int64_t block, Random random) override {
    return std::make_unique<TrainingTaskStreams>(drawer(), name(), batch, block, std::move(random));
  }
  std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t block,
                                               bool drop_partial) override {
    int64_t words = (count(part) + batch - 1) / batch;
    if (drop_partial) words = std::max(words / block, int64_t{1}) * block;
    return std::make_unique<EvaluationTaskStreams>(TaskStreams(drawer(), name(), batch, random_of(part)), words, block);
  }
  int64_t streams(const std::string& part, int64_t block, int64_t most) const override {
    return std::clamp<int64_t>(count(part) / (2 * block), 1, most);
  }
  /// Executions first: they are what the task is for.
  std::vector<Figure> figures(const Score& score) const override {
    std::vector<Figure> all;
    const auto share = [](int64_t part, int64_t whole) {
      return static_cast<double>(part) / static_cast<double>(whole);
    };
    if (score.answers > 0)
      all.push_back({"executions right", "answer_accuracy", share(score.right_answers, score.answers)});
    if (score.scored == 0) return all;
    all.push_back({"perplexity", "ppl", std::exp(score.nats / static_cast<double>(score.scored))});
    all.push_back({"accuracy of words", "accuracy", share(score.right, score.scored)});
    return all;
  }

 private:
  int64_t count(const std::string& part) const { return part == "valid" ? valid_ : test_; }
  DrawStream drawer() const {
    return [setting = setting_](Random random) { return std::make_unique<LogStream>(setting, std::move(random)); };
  }

  std::shared_ptr<const Setting> setting_;
  int64_t valid_, test_;
};

class Instruction : public TaskOptions {
 public:
  std::string name() const override { return "instruction"; }
  Fields fields() override {
    return {
        field(
            "world", world_,
            "JSON of a LIGHT game's world; the paper's: complex_world_2020-09.json; default: a village of 9 rooms and "
            "7 agents that comes with the program")
            .path(),
        field("chatter", chatter_, "a text, plain or gzip, whose words pad the log; default: no chatter").path(),
        field("chatter_words", rules_.chatter_words,
              "of `chatter`, before each round, on average: uniform in 0 ... twice as many")
            .in(0, 1e6)
            .unit("words")
            .used_if([this] { return !chatter_.empty(); }),
        field("rounds", rules_.rounds, "of a game; then another begins, with another viewpoint").in(1, 1e9),
        field("vocabulary", vocabulary_,
              "at most so many different words: the world's, then the most frequent of `chatter`; others become <unk>")
            .in(3, 1 << 24)
            .unit("words"),
        field("valid_words", valid_,
              "size of the validation set, over all its streams; a validation reads whole blocks, at least one of each")
            .in(2, 1e9)
            .unit("words"),
        field("test_words", test_, "size of the test set, over all its streams").in(2, 1e9).unit("words"),
    };
  }
  int64_t window() const override { return 0; }
  std::string unit() const override { return "word"; }
  bool scores_all() const override { return true; }
  std::unique_ptr<Source> open() const override {
    LightWorld world =
        world_.empty() ? parse_light_world(kVillage, "village.json") : parse_light_world(read("world", world_), world_);
    InstructionWords words(world, chatter_.empty() ? "" : read("chatter", chatter_), vocabulary_);
    return std::make_unique<InstructionSource>(name(), test_seed_, Setting{std::move(world), std::move(words), rules_},
                                               valid_, test_);
  }

 private:
  static std::string read(const char* option, const std::string& path) {
    if (!is_there(path))
      fail(
          fmt::format("instruction.{}: there is no file {}; `scripts/data.sh --list` says where LIGHT's world comes "
                      "from, and any text will do for chatter",
                      option, path));
    std::string text;
    try {
      text = read_text_file(path);
      require_utf8(text, path);
    } catch (const Error& error) {
      fail(fmt::format("instruction.{}: {}", option, error.what()));
    }
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    if (text.find_first_not_of(" \t\r\n") == text.npos) fail(fmt::format("instruction.{}: {} is empty", option, path));
    return text;
  }

  std::string world_, chatter_;
  InstructionRules rules_;
  int64_t vocabulary_ = 8192, valid_ = 100'000, test_ = 200'000;
};

}  // namespace

std::unique_ptr<TaskOptions> instruction_options() { return std::make_unique<Instruction>(); }

}  // namespace lapse
