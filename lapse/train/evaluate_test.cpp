// Scores of what is only partly scored, against a count over whole streams.
#include "lapse/train/evaluate.h"

#include "lapse/train/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lapse/core/testing.h"
#include "lapse/forgetting/registry.h"
#include "lapse/ops/aten.h"
#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.width = 8, config.heads = 2, config.layers = 1, config.feed_forward = 8;
  return config;
}

Transformer small_model(const Source& source, uint64_t seed = 1) {
  return Transformer(small_config(), *find_method("fixed_span").options(),
                     token_ends(source.vocabulary().size(), source.vocabulary().outputs()), 8, Random(seed, "weights"));
}

/// Score::right, answers, right_answers of one block that holds everything.
Score count(Transformer& model, const TokenBlock& block) {
  auto memory = model.begin(block.batch, Stored::projections);
  const at::Tensor guess = model.forward(Batch(block).input, memory, {}).logits.argmax(2);
  Score score;
  for (int64_t b = 0; b < block.batch; ++b) {
    int64_t open = 0, right = 0;
    for (int64_t i = 0; i <= block.length; ++i) {
      const int64_t target = i < block.length ? block.target[b * block.length + i] : kUnscored;
      if (target == kUnscored) {
        score.answers += open > 0, score.right_answers += open > 0 && right == open;
        open = right = 0;
        continue;
      }
      const bool hit = guess[b][i].item<int64_t>() == target;
      ++open, right += hit, ++score.scored, score.right += hit;
    }
  }
  return score;
}

// Against the reports of a reading by hand.
TEST(Evaluate, TellsSpans) {
  const auto source = make_task("long_copy", {{"gap", "5"}, {"most", "2"}, {"test_sequences", "20"}})->open();
  const auto options = find_method("expire_span").options();
  Transformer model(small_config(), *options, token_ends(source->vocabulary().size(), source->vocabulary().outputs()),
                    8, Random(1, "weights"));
  ModelMemory memory;
  double sum = 0, count = 0, max = 0;
  TokenBlock block;
  at::NoGradGuard no_grad;
  for (const auto blocks = source->evaluation("test", 3, 7, false); blocks->next(block);) {
    if (block.restart) memory = model.begin(block.batch, Stored::projections);
    const Batch batch(block);
    const auto report = model.forward(batch.input, memory, {.observe = true, .lengths = batch.lengths}).reports[0];
    const at::Tensor spans = report.told.at("span").flatten().to(at::kDouble);
    for (int64_t i = 0; i < spans.numel(); ++i)
      if (const double span = spans[i].item<double>(); !std::isnan(span))
        sum += span, ++count, max = std::max(max, span);
  }
  for (const int64_t parts : {1, 3}) {
    const auto result = evaluate(model, *source->evaluation("test", 3, 7, false), {.parts = parts});
    const auto& layer = result.layers.at(0);
    EXPECT_NEAR(layer.told.at("span").mean, sum / count, 1e-6);
    EXPECT_NEAR(layer.told.at("span").max, max, 1e-6);
    const auto json = to_json(layer);
    EXPECT_EQ(json["span_mean"], layer.told.at("span").mean);
    EXPECT_EQ(json["span_max"], layer.told.at("span").max);
  }
}

TEST(Evaluate, CountsAnswersThatReachFromBlockToBlock) {
  const auto source = make_task("long_copy", {{"gap", "5"}, {"most", "2"}, {"test_sequences", "60"}})->open();
  TokenBlock whole;
  ASSERT_TRUE(source->evaluation("test", 3, 100000, false)->next(whole));
  uint64_t seed = 1;
  Score expected;
  for (; expected.right == 0 || expected.right == expected.scored; ++seed) {  // random weights that are right sometimes
    ASSERT_LT(seed, 100u);
    Transformer candidate = small_model(*source, seed + 1);
    expected = count(candidate, whole);
  }
  Transformer model = small_model(*source, seed);
  EXPECT_EQ(expected.answers, 60);
  double nats = 0;
  for (const int64_t block : {1, 2, 3, 7, 1000}) {
    const auto result = evaluate(model, *source->evaluation("test", 3, block, false));
    EXPECT_EQ(result.score.scored, expected.scored);
    EXPECT_EQ(result.score.right, expected.right);
    EXPECT_EQ(result.score.answers, expected.answers);
    EXPECT_EQ(result.score.right_answers, expected.right_answers);
    if (nats == 0) nats = result.nats;
    EXPECT_NEAR(result.nats, nats, 1e-5);
  }
}

/// Streams of random tokens, all to be predicted, in which runs of one to three are asked for.
class AskingText : public EvaluationBlocks {
 public:
  static constexpr int64_t kBatch = 2, kTokens = 3, kLength = 119;

  explicit AskingText(int64_t block) : block_(block) {
    Random random(5, "text");
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t left = 0, at = 0; at <= kLength; ++at, --left) {
        if (left == 0) left = 1 + static_cast<int64_t>(random.below(3)), asking_ = !asking_;
        tokens.push_back(static_cast<int64_t>(random.below(kTokens)));
        asked.push_back(asking_ && at > 0);
      }
      asked.back() = true;  // broken off: more may be asked for
    }
  }
  bool next(TokenBlock& block) override {
    if (done_ == kLength) return false;
    const int64_t length = std::min(block_, kLength - done_);
    block = {.batch = kBatch, .length = length, .restart = done_ == 0, .bytes = {kBatch * length}, .answers = true};
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = done_ + b * (kLength + 1); i < done_ + length + b * (kLength + 1); ++i) {
        block.input.push_back(tokens[i]), block.target.push_back(tokens[i + 1]);
        block.asked.push_back(asked[i + 1]);
      }
    done_ += length;
    return true;
  }
  int64_t blocks() const override { return (kLength + block_ - 1) / block_; }

  std::vector<int64_t> tokens;  ///< [kBatch][kLength + 1]
  std::vector<bool> asked;      ///< of each token

 private:
  int64_t block_, done_ = 0;
  bool asking_ = false;
};

/// The `count` tokens that greedy decoding gives after tokens that were read from empty memory.
std::vector<int64_t> decode(Transformer& model, std::vector<int64_t> read, int64_t count) {
  auto memory = model.begin(1, Stored::projections);
  std::vector<int64_t> made;
  for (; std::ssize(made) < count; read = {made.back()}) {
    const at::Tensor input = at::tensor(read, at::kLong).unsqueeze(0);
    made.push_back(model.forward(input, memory, {}).logits[0][-1].argmax().item<int64_t>());
  }
  return made;
}

// What is right in one reading of the true text, word by word, is what greedy decoding within it says.
TEST(Evaluate, AnswersWithinATextAreThoseThatGreedyDecodingGives) {
  const AskingText text(1);
  ModelConfig config;
  config.width = 8, config.heads = 2, config.layers = 2, config.feed_forward = 8;
  Transformer model(config, *find_method("fixed_span").options(), token_ends(AskingText::kTokens, 0), 8,
                    Random(2, "weights"));
  Score expected;
  for (int64_t b = 0; b < AskingText::kBatch; ++b) {
    const int64_t begin = b * (AskingText::kLength + 1), end = begin + AskingText::kLength + 1;
    for (int64_t first = begin + 1, last; first < end; first = last + 1) {
      for (last = first; last < end && text.asked[last];) ++last;
      if (last == first || last == end) continue;
      const std::vector<int64_t> truth(text.tokens.begin() + first, text.tokens.begin() + last);
      const std::vector<int64_t> before(text.tokens.begin() + begin, text.tokens.begin() + first);
      ++expected.answers, expected.right_answers += decode(model, before, std::ssize(truth)) == truth;
    }
  }
  ASSERT_TRUE(expected.right_answers > 3 && expected.right_answers < expected.answers - 3) << expected.right_answers;
  for (const int64_t block : {1, 2, 3, 7, 1000}) {
    AskingText blocks(block);
    const Score score = evaluate(model, blocks).score;
    EXPECT_EQ(score.scored, AskingText::kBatch * AskingText::kLength);
    EXPECT_EQ(score.answers, expected.answers) << block;
    EXPECT_EQ(score.right_answers, expected.right_answers) << block;
  }
}

TEST(Evaluate, ProgressIsOfTheFirstPartAndItsOwnBytes) {
  AskingText blocks(7);
  Transformer model(small_config(), *find_method("fixed_span").options(), token_ends(AskingText::kTokens, 0), 8,
                    Random(2, "weights"));
  Score last;
  evaluate(model, blocks, {.progress = [&](int64_t, int64_t, const Score& score) { last = score; }, .parts = 2});
  EXPECT_EQ(last.scored, AskingText::kLength);
  EXPECT_EQ(last.bytes.all, AskingText::kLength);
}

TEST(Evaluate, CountsAnswersOfSequences) {
  const auto task = make_task("copy", {{"longest", "3"}, {"alphabet", "2"}, {"test_sequences", "40"}});
  const auto source = task->open();
  Transformer model = small_model(*source);
  TokenBlock whole;
  ASSERT_TRUE(source->evaluation("test", 40, 8, false)->next(whole));
  const Score expected = count(model, whole);
  EXPECT_EQ(expected.answers, 40);
  for (const int64_t batch : {1, 7, 40}) {
    const auto result = evaluate(model, *source->evaluation("test", batch, 8, false));
    EXPECT_EQ(result.score.scored, expected.scored);
    EXPECT_EQ(result.score.right, expected.right);
    EXPECT_EQ(result.score.answers, 40);
    EXPECT_EQ(result.score.right_answers, expected.right_answers);
  }
}

// Sequences of several lengths in one block: what fills up the shorter ones remembers nothing that counts.
TEST(Evaluate, CountsNoPaddingInMemorySizes) {
  const auto task = make_task("copy", {{"longest", "9"}, {"alphabet", "2"}, {"test_sequences", "30"}});
  const auto source = task->open();
  Transformer model = small_model(*source);
  const auto blocks = source->evaluation("test", 7, 8, false);
  double sum = 0, largest = 0;
  int64_t queries = 0;
  std::set<int64_t> lengths;
  for (TokenBlock block; blocks->next(block);)
    for (const int64_t length : block.lengths) {
      lengths.insert(length);
      queries += length;
      for (int64_t t = 0; t < length; ++t) sum += static_cast<double>(t);  // the span holds every sequence
      largest = std::max(largest, static_cast<double>(length - 1));
    }
  ASSERT_GT(lengths.size(), 3u);
  const auto result = evaluate(model, *source->evaluation("test", 7, 8, false));
  EXPECT_DOUBLE_EQ(result.layers[0].mean, sum / static_cast<double>(queries));
  EXPECT_EQ(result.layers[0].max, largest);
}

TEST(Evaluate, GivesTheLossesOfEachBlock) {
  const auto task = make_task("copy", {{"longest", "9"}, {"test_sequences", "40"}});
  const auto source = task->open();
  Transformer model = small_model(*source);
  double nats = 0, sizes = 0;
  int64_t scored = 0, queries = 0;
  const auto each = [&](const TokenBlock& block, const TokenLosses& losses) {
    ASSERT_EQ(losses.nats.size(), block.target.size());
    ASSERT_EQ(losses.sizes.at(0).size(), block.target.size());
    for (int64_t i = 0; i < std::ssize(block.target); ++i) {
      EXPECT_EQ(std::isnan(losses.nats[i]), block.target[i] == kUnscored);
      if (block.target[i] != kUnscored) nats += losses.nats[i], ++scored;
      const int64_t length = block.lengths.empty() ? block.length : block.lengths[i / block.length];
      if (i % block.length < length) sizes += static_cast<double>(losses.sizes[0][i]), ++queries;
    }
  };
  const auto result = evaluate(model, *source->evaluation("test", 7, 8, false), {.each = each});
  EXPECT_NEAR(nats, result.score.nats, 1e-5 * result.score.nats);  // float32 sums, in another order
  EXPECT_EQ(scored, result.score.scored);
  EXPECT_DOUBLE_EQ(sizes / static_cast<double>(queries), result.layers[0].mean);
}

TEST(Evaluate, AnswersThatAreBrokenOffAreNotCounted) {
  const auto source = make_task("long_copy", {{"gap", "5"}, {"most", "2"}, {"test_sequences", "60"}})->open();
  Transformer model = small_model(*source);
  int64_t ended = 0, open = 0;  // of one stream, token by token
  for (int64_t i = 1; i < 40; ++i) {
    TokenBlock block;
    ASSERT_TRUE(source->evaluation("test", 1, i + 1, false)->next(block));
    const bool now = block.target[i - 1] != kUnscored;
    ended += open > 0 && !now, open = now ? open + 1 : 0;
    if (ended + open == 0) continue;
    const auto result = evaluate(model, *source->evaluation("test", 1, i, false), {.max_blocks = 1});
    EXPECT_EQ(result.score.answers, ended) << i;
  }
  EXPECT_GE(ended, 3);
}

TEST(Evaluate, RefusesWhereNothingIsScored) {
  const auto source = make_task("long_copy", {{"gap", "100"}})->open();
  Transformer model = small_model(*source);
  EXPECT_THAT(error_of([&] { evaluate(model, *source->evaluation("test", 1, 10, false), {.max_blocks = 2}); }),
              testing::HasSubstr("nothing in what was evaluated is scored"));
}

TEST(Evaluate, ALossThatIsNotFiniteIsAnError) {
  const auto task = make_task("copy", {{"longest", "3"}, {"test_sequences", "4"}});
  const auto source = task->open();
  Transformer model = small_model(*source);
  for (auto& [name, tensor] : model.parameters()) tensor->detach().fill_(3e38);
  EXPECT_THAT(error_of([&] { evaluate(model, *source->evaluation("test", 4, 8, false)); }),
              testing::StartsWith("the loss is "));
  const auto result = evaluate(model, *source->evaluation("test", 4, 8, false), {.any_loss = true});
  EXPECT_FALSE(std::isfinite(result.nats));
}

}  // namespace
}  // namespace lapse
