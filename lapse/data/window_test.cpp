#include "lapse/data/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "lapse/core/testing.h"
#include "lapse/data/blocks.h"

namespace lapse {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kBos = 1000;

/// The text 0, 1, 2, ...: a token tells its place.
Tokens counting(int64_t size) {
  std::vector<int32_t> ids(size);
  std::iota(ids.begin(), ids.end(), 0);
  return Tokens(ids, kBos + 1);
}

/// Checks that every row is BOS and the tokens before each target; returns where the rows begin.
std::vector<int64_t> check_windows(const TokenBlock& block) {
  EXPECT_TRUE(block.restart);
  EXPECT_EQ(std::ssize(block.input), block.batch * block.length);
  EXPECT_EQ(block.target.size(), block.input.size());
  EXPECT_EQ(block.bytes.all, block.batch * block.length);
  EXPECT_EQ(block.scored(), block.batch * block.length);
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < block.batch; ++b) {
    starts.push_back(block.target[b * block.length]);
    for (int64_t i = 0; i < block.length; ++i) {
      EXPECT_EQ(block.target[b * block.length + i], starts.back() + i);
      EXPECT_EQ(block.input[b * block.length + i], i == 0 ? kBos : starts.back() + i - 1);
    }
  }
  return starts;
}

TEST(TrainingWindows, BeginAnywhereThatLeavesAWholeWindow) {
  const Tokens tokens = counting(20);
  TrainingWindows windows(tokens, kBos, 3, 5, Random(1, "text"));
  std::set<int64_t> seen;
  for (int i = 0; i < 300; ++i) {
    const TokenBlock block = windows.next();
    EXPECT_EQ(block.batch, 3);
    EXPECT_EQ(block.length, 5);
    for (const int64_t start : check_windows(block)) seen.insert(start);
    EXPECT_TRUE(windows.state().restart);
  }
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 15);
}

TEST(TrainingWindows, ResumeExactly) {
  const Tokens tokens = counting(500);
  TrainingWindows whole(tokens, kBos, 4, 8, Random(7, "text")), resumed(tokens, kBos, 4, 8, Random(7, "text"));
  for (int i = 0; i < 11; ++i) whole.next();
  resumed.set_state(whole.state());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(whole.next().input, resumed.next().input);
}

TEST(TrainingWindows, RefuseATextThatIsTooShort) {
  const Tokens tokens = counting(5);
  EXPECT_NO_THROW(TrainingWindows(tokens, kBos, 2, 5, Random(1, "text")));
  EXPECT_THAT(error_of([&] { TrainingWindows(tokens, kBos, 2, 6, Random(1, "text")); }), HasSubstr("has 5 tokens"));
}

TEST(EvaluationWindows, PredictEveryTokenOnce) {
  for (int64_t size = 1; size < 60; ++size)
    for (const int64_t batch : {1, 3, 10}) {
      const Tokens tokens = counting(size);
      EvaluationWindows windows(tokens, kBos, batch, 7, false);
      int64_t next = 0, blocks = 0;
      for (TokenBlock block; windows.next(block); ++blocks) {
        EXPECT_LE(block.batch, batch);
        for (const int64_t start : check_windows(block)) {
          EXPECT_EQ(start, next);
          next += block.length;
        }
      }
      EXPECT_EQ(next, size);
      EXPECT_EQ(windows.blocks(), blocks);
    }
}

TEST(EvaluationWindows, DropThePartialOne) {
  const Tokens tokens = counting(30), short_text = counting(6), none = counting(0);
  EvaluationWindows windows(tokens, kBos, 3, 7, true);
  TokenBlock block;
  EXPECT_EQ(windows.blocks(), 2);
  EXPECT_TRUE(windows.next(block));
  EXPECT_EQ(block.batch, 3);
  EXPECT_TRUE(windows.next(block));
  EXPECT_EQ(block.batch, 1);
  EXPECT_EQ(check_windows(block), std::vector<int64_t>{21});
  EXPECT_FALSE(windows.next(block));
  EXPECT_THAT(error_of([&] { EvaluationWindows(short_text, kBos, 1, 7, true); }), HasSubstr("has 6 tokens"));
  EXPECT_THAT(error_of([&] { EvaluationWindows(none, kBos, 1, 7, false); }), HasSubstr("is empty"));
}

TEST(Blocks, AreStreamsOrWindowsAsTheConfigurationSays) {
  DataConfig config;
  for (const bool windows : {false, true}) {
    config.windows = windows;
    const auto vocabulary = Vocabulary::build(config, "text");
    EXPECT_EQ(vocabulary.size(), windows ? 257 : 256);
    const Tokens tokens(vocabulary.encode(std::string(100, 'a')), vocabulary.size());
    const auto training = training_blocks(config, vocabulary, tokens, 2, 10, Random(1, "text"));
    EXPECT_EQ(training->next().input[0], windows ? vocabulary.bos() : 'a');
    const auto evaluation = evaluation_blocks(config, vocabulary, tokens, 2, 10, false);
    int64_t predicted = 0;
    for (TokenBlock block; evaluation->next(block);) predicted += block.scored();
    EXPECT_EQ(predicted, windows ? 100 : 98);
  }
}

}  // namespace
}  // namespace lapse
