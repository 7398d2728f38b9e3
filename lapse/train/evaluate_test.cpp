// Scores of what is only partly scored, against a count over whole streams.
#include "lapse/train/evaluate.h"

#include "lapse/train/batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lapse/core/testing.h"
#include "lapse/forgetting/registry.h"
#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

Transformer small_model(const Source& source, uint64_t seed = 1) {
  ModelConfig config;
  config.width = 8, config.heads = 2, config.layers = 1, config.feed_forward = 8;
  return Transformer(config, *find_method("fixed_span").options(),
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
