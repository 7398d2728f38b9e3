#include "lapse/tasks/long_copy.h"

#include <gtest/gtest.h>

#include <map>

#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

constexpr int64_t kA = 0, kB = 1, kQuery = 2, kEnd = 3;

/// The streams of a task, one after the other.
struct Streams {
  std::vector<std::vector<int64_t>> input, target;

  void add(const TokenBlock& block) {
    input.resize(block.batch), target.resize(block.batch);
    for (int64_t i = 0; i < std::ssize(block.input); ++i) {
      input[i / block.length].push_back(block.input[i]);
      target[i / block.length].push_back(block.target[i]);
    }
  }
};

/// Reads a stream by the rules; returns the number of whole sequences.
int64_t check(const std::vector<int64_t>& input, const std::vector<int64_t>& target, int64_t gap,
              std::map<int64_t, int>& numbers, std::map<int64_t, int>& gaps) {
  int64_t whole = 0;
  for (size_t at = 0; at < input.size(); ++whole) {
    const auto query = std::find(input.begin() + at, input.end(), kQuery);
    if (query == input.end()) break;
    const auto first = std::find(input.begin() + at, query, kA);
    const auto n = std::count(first, query, kA);
    EXPECT_TRUE(std::all_of(first, first + n, [](int64_t t) { return t == kA; })) << "together";
    EXPECT_EQ(query - (input.begin() + at), gap + n);
    EXPECT_EQ(std::count(input.begin() + at, query, kB), gap);
    const size_t end = query - input.begin() + n + 1;
    if (end >= input.size()) break;
    for (size_t i = at; i <= end; ++i) {
      const bool answers = i >= end - n - 1 && i < end;
      EXPECT_EQ(target[i], answers ? (i + 1 < end ? kA : kEnd) : kUnscored) << i;
      if (answers) {
        EXPECT_EQ(input[i + 1], target[i]) << "teacher-forced";
      }
    }
    ++numbers[n], ++gaps[query - (first + n)];
    at = end + 1;
  }
  return whole;
}

TEST(LongCopy, FollowsItsRules) {
  const auto source = make_task("long_copy", {{"gap", "9"}})->open();
  const auto blocks = source->training(4, 16, Random(1, "text"));
  Streams streams;
  for (int n = 0; n < 1000; ++n) {
    EXPECT_EQ(blocks->state().restart, n == 0);
    const TokenBlock block = blocks->next();
    EXPECT_EQ(block.restart, n == 0);
    streams.add(block);
  }
  std::map<int64_t, int> numbers, gaps;
  int64_t whole = 0;
  for (size_t b = 0; b < 4; ++b) whole += check(streams.input[b], streams.target[b], 9, numbers, gaps);
  EXPECT_NEAR(static_cast<double>(whole), 4 * 16000 / 16.0, 30);  // 9 + 2 n + 2 tokens, n = 2.5 on average
  ASSERT_EQ(numbers.size(), 4u);
  for (const auto& [n, count] : numbers) EXPECT_NEAR(count, whole / 4.0, 140) << n;
  ASSERT_EQ(gaps.size(), 10u);
  EXPECT_EQ(gaps.begin()->first, 0);
  for (const auto& [gap, count] : gaps) EXPECT_NEAR(count, whole / 10.0, 100) << gap;
  EXPECT_NE(streams.input[0], streams.input[1]) << "every stream has a seed of its own";
}

TEST(LongCopy, ResumesFarAwayWithoutReadingAllOfIt) {
  const auto source = make_task("long_copy", {{"gap", "131072"}})->open();
  const auto whole = source->training(2, 512, Random(1, "text")), resumed = source->training(2, 512, Random(1, "text"));
  for (int n = 0; n < 1200; ++n) whole->next();
  resumed->set_state(whole->state());
  for (int n = 0; n < 300; ++n) {
    const TokenBlock a = whole->next(), b = resumed->next();
    ASSERT_TRUE(a.input == b.input && a.target == b.target);
  }
}

TEST(LongCopy, EvaluatesSoManySequences) {
  const auto source = make_task("long_copy", {{"gap", "23"}, {"test_sequences", "50"}})->open();
  for (const int64_t batch : {1, 3, 5}) {
    Streams streams;
    const auto blocks = source->evaluation("test", batch, 10, false);
    for (TokenBlock block; blocks->next(block);) streams.add(block);
    int64_t answers = 0;
    for (const auto& target : streams.target) answers += std::count(target.begin(), target.end(), kEnd);
    EXPECT_EQ(answers, batch == 3 ? 51 : 50);
  }
}

TEST(LongCopy, EvaluatesTheSameTokensInBlocksOfAnySize) {
  const auto source = make_task("long_copy", {{"gap", "23"}, {"test_sequences", "50"}})->open();
  const auto read = [&](int64_t size) {
    Streams streams;
    const auto blocks = source->evaluation("test", 3, size, false);
    for (TokenBlock block; blocks->next(block);) streams.add(block);
    return std::pair(streams.input, streams.target);
  };
  const auto tokens = read(1);
  for (const int64_t size : {7, 64, 100'000}) EXPECT_EQ(read(size), tokens) << size;
}

}  // namespace
}  // namespace lapse
