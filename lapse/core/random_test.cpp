#include "lapse/core/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lapse {
namespace {

constexpr int kDraws = 200'000;
constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();

// Runs resume and results repeat only while these values stay what they are.
TEST(Random, FixedValues) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);  // published for SplitMix64
  const std::map<std::pair<uint64_t, std::string>, std::vector<uint64_t>> expected = {
      {{0, ""}, {0x61e1ce9ac023e336, 0x89b46490845cc668, 0x3880ce12978bb05b}},
      {{1, "init"}, {0x42fc9c2476e17541, 0x34080de48567d723, 0xafd874bae63cefe9}},
      {{kLargest, "dropout"}, {0x7dacd36eff6ed3b5, 0x1a5df5204ba8e7d0, 0xd0b2cf89cedc3003}}};
  for (const auto& [stream, words] : expected) {
    Random random(stream.first, stream.second);
    for (uint64_t word : words) EXPECT_EQ(random.next(), word) << stream.second;
  }
  EXPECT_EQ(Random(1, "init").uniform(), 0.2616670216583594);
  EXPECT_NEAR(Random(1, "init").normal(), 0.22553370743543116, 1e-15);
  EXPECT_EQ(Random(1, "init").below(1000), 905u);
}

TEST(Random, CounterIsTheWholeState) {
  Random random(7, "data");
  for (int i = 0; i < 10; ++i) random.normal(), random.below(3), random.uniform();
  Random resumed(7, "data");
  resumed.set_counter(random.counter());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(random.normal(), resumed.normal());
    EXPECT_EQ(random.next(), resumed.next());
  }
}

TEST(Random, EachDrawTakesAFixedNumberOfWords) {
  Random random(7, "data");
  random.next();
  EXPECT_EQ(random.counter(), 1u);
  random.uniform();
  EXPECT_EQ(random.counter(), 2u);
  for (int i = 1; i <= 3; ++i) {
    random.normal();
    EXPECT_EQ(random.counter(), 2u + 2 * i);
  }
}

TEST(Random, CopiesGoOnAlike) {
  Random random(7, "data");
  random.next();
  Random copy = random;
  EXPECT_EQ(copy.next(), random.next());
}

TEST(Random, CounterMayWrap) {
  Random random(7, "data");
  const uint64_t first = random.next();
  random.set_counter(kLargest);
  EXPECT_NE(random.next(), first);
  EXPECT_EQ(random.next(), first);
}

TEST(Random, StreamsShareNoWords) {
  std::set<uint64_t> words;
  size_t drawn = 0;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{256}, kLargest}) {
    for (const char* name : {"", "a", "b", "ab", "ba", "a ", "dropout", "dropout.1"}) {
      Random random(seed, name);
      for (int i = 0; i < 2000; ++i, ++drawn) words.insert(random.next());
    }
  }
  EXPECT_EQ(words.size(), drawn);
}

TEST(Random, NamesMayHoldAnyByte) {
  using namespace std::string_view_literals;
  EXPECT_NE(Random(1, "a\0b"sv).next(), Random(1, "a"sv).next());
  EXPECT_NE(Random(1, "\0"sv).next(), Random(1, ""sv).next());
  EXPECT_NE(Random(1, "\xff"sv).next(), Random(1, "\x7f"sv).next());
}

// Half the bits of two words differ if the words are unrelated: within a stream, and between neighbouring streams.
TEST(Random, BitsAreUnrelated) {
  Random random(3, "a"), other_seed(4, "a"), other_name(3, "b");
  double within = 0, seeds = 0, names = 0;
  std::vector<int> ones(64);
  uint64_t before = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t word = random.next();
    within += std::popcount(word ^ before), before = word;
    seeds += std::popcount(word ^ other_seed.next());
    names += std::popcount(word ^ other_name.next());
    for (int bit = 0; bit < 64; ++bit) ones[bit] += word >> bit & 1;
  }
  const double tolerance = 5 * 4 / std::sqrt(kDraws);  // five standard errors; a popcount deviates by 4
  EXPECT_NEAR(within / kDraws, 32, tolerance);
  EXPECT_NEAR(seeds / kDraws, 32, tolerance);
  EXPECT_NEAR(names / kDraws, 32, tolerance);
  for (int bit = 0; bit < 64; ++bit) EXPECT_NEAR(ones[bit], kDraws / 2, 5 * std::sqrt(kDraws) / 2) << bit;
}

TEST(Random, UniformFillsTheUnitInterval) {
  Random random(5, "uniform");
  std::vector<int> count(100);
  double sum = 0, squares = 0, products = 0, before = 0.5;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++count[static_cast<size_t>(u * 100)];
    sum += u, squares += u * u, products += (u - 0.5) * (before - 0.5), before = u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.004);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.004);
  EXPECT_NEAR(products / kDraws, 0, 0.001);
  double chi_square = 0;
  for (int n : count) chi_square += std::pow(n - kDraws / 100.0, 2) / (kDraws / 100.0);
  EXPECT_GT(chi_square, 50);  // 99 degrees of freedom: too even is suspicious too
  EXPECT_LT(chi_square, 160);
}

TEST(Random, NormalHasItsMomentsAndTails) {
  Random random(5, "normal");
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x, squares += x * x, cubes += x * x * x, fourths += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.012);
  EXPECT_NEAR(squares / kDraws, 1, 0.016);
  EXPECT_NEAR(cubes / kDraws, 0, 0.045);
  EXPECT_NEAR(fourths / kDraws, 3, 0.11);
  EXPECT_NEAR(beyond_two / double{kDraws}, 0.0455, 0.0025);
}

TEST(Random, BelowIsEven) {
  Random random(5, "below");
  std::vector<int> count(7);
  for (int i = 0; i < 70'000; ++i) ++count.at(random.below(7));
  for (int n : count) EXPECT_NEAR(n, 10'000, 500);
}

TEST(Random, BelowHasNoModuloBias) {
  Random random(5, "bias");
  const uint64_t third = uint64_t{1} << 62;  // a plain remainder would fall into the first third half of the time
  int first_third = 0;
  for (int i = 0; i < 30'000; ++i) first_third += random.below(3 * third) < third;
  EXPECT_NEAR(first_third, 10'000, 500);
}

TEST(Random, BelowAtItsLimits) {
  Random random(5, "limits");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.below(kLargest), kLargest);
}

}  // namespace
}  // namespace lapse
