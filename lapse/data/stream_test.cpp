#include "lapse/data/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "lapse/core/error.h"

namespace lapse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

/// The text 0, 1, 2, ...: a token tells its place.
Tokens counting(int64_t size) {
  std::vector<int32_t> ids(size);
  std::iota(ids.begin(), ids.end(), 0);
  return Tokens(ids, std::max<int64_t>(size, 1));
}

struct Shape {
  int64_t batch, block, size;
};

Shape random_shape(Random& random) {
  Shape shape = {1 + static_cast<int64_t>(random.below(5)), 1 + static_cast<int64_t>(random.below(9)), 0};
  shape.size = shape.batch * (2 * shape.block + 1) + static_cast<int64_t>(random.below(200));
  return shape;
}

/// Checks that row r continues stream r and predicts each next token; returns the offset in the streams.
int64_t check_block(const TokenBlock& block, int64_t batch, int64_t length, int64_t stream_length) {
  EXPECT_EQ(block.batch, batch);
  EXPECT_EQ(block.length, length);
  EXPECT_EQ(block.input.size(), static_cast<size_t>(batch * length));
  EXPECT_EQ(block.target.size(), block.input.size());
  int64_t offset = block.input.at(0);
  EXPECT_LT(offset + length, stream_length);
  for (int64_t row = 0; row < batch; ++row) {
    for (int64_t i = 0; i < length; ++i) {
      EXPECT_EQ(block.input[row * length + i], row * stream_length + offset + i);
      EXPECT_EQ(block.target[row * length + i], block.input[row * length + i] + 1);
    }
  }
  return offset;
}

bool same(const TokenBlock& a, const TokenBlock& b) {
  return a.batch == b.batch && a.length == b.length && a.input == b.input && a.target == b.target &&
         a.restart == b.restart;
}

auto error(const std::string& message) { return ThrowsMessage<Error>(AllOf(HasSubstr(message), Not(HasSubstr("\n")))); }

TEST(TrainingStreams, RunOnUntilTheEndAndThenRestartNearTheStart) {
  Random shapes(1, "shapes");
  for (int round = 0; round < 100; ++round) {
    Shape s = random_shape(shapes);
    int64_t stream_length = s.size / s.batch, end = 0, passes = 0;
    Tokens tokens = counting(s.size);
    TrainingStreams streams(tokens, s.batch, s.block, Random(round, "data"));
    for (int step = 0; step < 200; ++step) {
      EXPECT_EQ(streams.state().restart, step == 0 || end + s.block + 1 > stream_length);
      int64_t position = streams.state().position;
      TokenBlock block = streams.next();
      int64_t offset = check_block(block, s.batch, s.block, stream_length);
      EXPECT_EQ(offset, position);
      EXPECT_EQ(block.restart, step == 0 || end + s.block + 1 > stream_length);
      if (!block.restart) {
        EXPECT_EQ(offset, end);
      } else if (step > 0) {
        EXPECT_LT(offset, s.block);
        ++passes;
      }
      end = offset + s.block;
    }
    EXPECT_EQ(streams.state().pass, passes + streams.state().restart);
  }
}

TEST(TrainingStreams, StartAnywhereThatLeavesAWholeBlock) {
  Tokens tokens = counting(2 * 20 + 1);
  std::set<int64_t> first, second;
  for (int seed = 0; seed < 1000; ++seed) {
    TrainingStreams streams(tokens, 2, 4, Random(seed, "data"));
    first.insert(streams.next().input[0]);
    TokenBlock block = streams.next();
    while (!block.restart) block = streams.next();
    second.insert(block.input[0]);
  }
  EXPECT_EQ(*first.begin(), 0);
  EXPECT_EQ(*first.rbegin(), 20 - 5);
  EXPECT_EQ(first.size(), 16u);
  EXPECT_THAT(second, ElementsAre(0, 1, 2, 3));
}

TEST(TrainingStreams, ResumeExactlyFromAnywhere) {
  Random shapes(2, "shapes");
  for (int round = 0; round < 100; ++round) {
    Shape s = random_shape(shapes);
    Tokens tokens = counting(s.size);
    TrainingStreams whole(tokens, s.batch, s.block, Random(7, "data"));
    for (uint64_t i = shapes.below(60); i > 0; --i) whole.next();
    TrainingStreams resumed(tokens, s.batch, s.block, Random(7, "data"));
    resumed.set_state(whole.state());
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(same(whole.next(), resumed.next())) << round << " " << i;
      ASSERT_EQ(whole.state().pass, resumed.state().pass);
    }
  }
}

TEST(TrainingStreams, DependOnTheSeed) {
  Tokens tokens = counting(10000);
  TrainingStreams a(tokens, 1, 4, Random(1, "data")), b(tokens, 1, 4, Random(2, "data"));
  EXPECT_NE(a.next().input, b.next().input);
}

TEST(TrainingStreams, RefuseATextThatIsTooShort) {
  Tokens enough = counting(3 * 9), short_by_one = counting(3 * 9 - 1), none;
  EXPECT_NO_THROW(TrainingStreams(enough, 3, 4, Random(1, "data")));
  EXPECT_THAT([&] { TrainingStreams(short_by_one, 3, 4, Random(1, "data")); }, error("has 26 tokens"));
  EXPECT_THAT([&] { TrainingStreams(short_by_one, 3, 4, Random(1, "data")); },
              error("lower train.batch or train.block"));
  EXPECT_THAT([&] { TrainingStreams(none, 1, 1, Random(1, "data")); }, error("has 0 tokens"));
  EXPECT_THAT([&] { TrainingStreams(enough, 0, 4, Random(1, "data")); }, error("at least 1"));
  EXPECT_THAT([&] { TrainingStreams(enough, 1, 0, Random(1, "data")); }, error("at least 1"));
}

TEST(TrainingStreams, RefuseAStateOfAnotherText) {
  Tokens tokens = counting(20);
  TrainingStreams streams(tokens, 2, 4, Random(1, "data"));  // positions 0 ... 5 leave a whole block
  for (int64_t position : {-1, 6, 1000}) {
    EXPECT_THAT([&] { streams.set_state({position, 0, false, 0}); }, error("cannot resume at token"));
  }
  streams.set_state({5, 0, false, 0});
  EXPECT_EQ(streams.next().input[0], 5);
}

TEST(EvaluationStreams, PredictEveryTokenButTheFirstOnce) {
  Random random(3, "shapes");
  for (int round = 0; round < 200; ++round) {
    Shape s = {1 + static_cast<int64_t>(random.below(5)), 1 + static_cast<int64_t>(random.below(9)), 0};
    s.size = 2 * s.batch + static_cast<int64_t>(random.below(100));
    int64_t stream_length = s.size / s.batch, end = 0, blocks = 0;
    Tokens tokens = counting(s.size);
    EvaluationStreams streams(tokens, s.batch, s.block, false);
    for (TokenBlock block; streams.next(block); ++blocks) {
      int64_t length = std::min(s.block, stream_length - 1 - end);
      EXPECT_EQ(check_block(block, s.batch, length, stream_length), end);
      EXPECT_EQ(block.restart, blocks == 0);
      end += length;
    }
    EXPECT_EQ(end, stream_length - 1);
    EXPECT_EQ(streams.blocks(), blocks);
  }
}

TEST(EvaluationStreams, DropThePartialBlock) {
  for (int64_t stream_length : {5, 6, 8, 9, 10}) {
    Tokens tokens = counting(3 * stream_length + 2);
    EvaluationStreams streams(tokens, 3, 4, true);
    int64_t blocks = 0;
    for (TokenBlock block; streams.next(block); ++blocks) check_block(block, 3, 4, stream_length);
    EXPECT_EQ(blocks, stream_length < 9 ? 1 : 2) << stream_length;
    EXPECT_EQ(streams.blocks(), blocks);
  }
}

TEST(EvaluationStreams, StayAtTheEnd) {
  Tokens tokens = counting(2);
  EvaluationStreams streams(tokens, 1, 100, false);
  TokenBlock block;
  EXPECT_TRUE(streams.next(block));
  EXPECT_THAT(block.input, ElementsAre(0));
  EXPECT_FALSE(streams.next(block));
  EXPECT_FALSE(streams.next(block));
}

TEST(EvaluationStreams, RefuseATextThatIsTooShort) {
  Tokens three = counting(3), none;
  EXPECT_NO_THROW(EvaluationStreams(three, 1, 4, false));
  EXPECT_THAT([&] { EvaluationStreams(three, 2, 4, false); }, error("has 3 tokens"));
  EXPECT_THAT([&] { EvaluationStreams(none, 1, 4, false); }, error("is empty"));
  EXPECT_THAT([&] { EvaluationStreams(three, 1, 4, true); }, error("need 5"));
  EXPECT_NO_THROW(EvaluationStreams(three, 1, 2, true));
  EXPECT_THAT([&] { EvaluationStreams(three, 0, 4, false); }, error("at least 1"));
}

}  // namespace
}  // namespace lapse
