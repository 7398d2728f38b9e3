#include "lapse/read/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

const at::Tensor kLogits = at::log(at::tensor({0.1, 0.4, 0.2, 0.3}, at::kDouble)).to(at::kFloat);

std::vector<double> shares(const SamplingOptions& options, int draws = 20000) {
  Random random(3, "test");
  std::vector<double> counts(4);
  for (int i = 0; i < draws; ++i) ++counts[sample(kLogits, options, random)];
  for (double& count : counts) count /= draws;
  return counts;
}

// The standard deviation of a share of 20,000 draws is at most 0.0036.
constexpr double kSpread = 0.015;

TEST(Sampler, DrawsByProbability) {
  const auto p = shares({});
  EXPECT_NEAR(p[0], 0.1, kSpread);
  EXPECT_NEAR(p[1], 0.4, kSpread);
  EXPECT_NEAR(p[2], 0.2, kSpread);
  EXPECT_NEAR(p[3], 0.3, kSpread);
}

TEST(Sampler, TemperatureSharpens) {
  const auto p = shares({.temperature = 0.5});  // squares, normalised: 0.01, 0.16, 0.04, 0.09 of 0.3
  EXPECT_NEAR(p[1], 0.16 / 0.3, kSpread);
  EXPECT_NEAR(p[0], 0.01 / 0.3, kSpread);
}

TEST(Sampler, TemperatureZeroTakesTheLikeliest) { EXPECT_DOUBLE_EQ(shares({.temperature = 0}, 50)[1], 1); }

TEST(Sampler, TopKKeepsTheLikeliest) {
  const auto p = shares({.top_k = 2});
  EXPECT_EQ(p[0] + p[2], 0);
  EXPECT_NEAR(p[1], 4.0 / 7, kSpread);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  EXPECT_DOUBLE_EQ(shares({.top_p = 0.39}, 200)[1], 1);
  const auto p = shares({.top_p = 0.75});  // 0.4 + 0.3 falls short: 0.2 comes too
  EXPECT_EQ(p[0], 0);
  EXPECT_NEAR(p[2], 0.2 / 0.9, kSpread);
  EXPECT_DOUBLE_EQ(shares({.top_p = 0}, 200)[1], 1) << "at least one token stays";
}

TEST(Sampler, TopKComesBeforeTopP) {
  const auto p = shares({.top_k = 3, .top_p = 0.5});  // of 0.9: 0.4 falls short of 0.45
  EXPECT_EQ(p[0] + p[2], 0);
  EXPECT_NEAR(p[3], 0.3 / 0.7, kSpread);
  EXPECT_DOUBLE_EQ(shares({.top_k = 3, .top_p = 0.42}, 200)[1], 1) << "0.4 is more than 0.42 of 0.9, less than of 1";
}

TEST(Sampler, AllTokensAndAllOfThemAsTopKAreDrawnAlike) {
  const at::Tensor logits =
      at::arange(257).to(at::kFloat).div(40).index_select(0, at::arange(257).mul(101).remainder(257));
  Random random(5, "test"), other(5, "test");
  for (int i = 0; i < 500; ++i) ASSERT_EQ(sample(logits, {}, random), sample(logits, {.top_k = 257}, other));
}

TEST(Sampler, EqualOnesGoToTheLowerIndex) {
  Random random(1, "test");
  for (const SamplingOptions& options : {SamplingOptions{.temperature = 0}, SamplingOptions{.top_k = 1}})
    EXPECT_EQ(sample(at::tensor({0.0, 1.0, 1.0, 0.5}), options, random), 1);
}

TEST(Sampler, OptionsOutOfRangeAreRefused) {
  Random random(1, "test");
  for (const SamplingOptions& wrong :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = NAN}, SamplingOptions{.top_k = -1},
        SamplingOptions{.top_p = -1}, SamplingOptions{.top_p = 1.5}, SamplingOptions{.top_p = NAN}})
    EXPECT_THROW(sample(at::tensor({0.0, 1.0}), wrong, random), Error);
  EXPECT_THROW(sample(at::empty({0}), {}, random), Error);
}

TEST(Sampler, DamagedLogitsAreRefused) {
  Random random(1, "test");
  for (const double temperature : {0.0, 1.0})
    for (const double damaged : {double{NAN}, double{INFINITY}})
      for (const auto& logits : {at::tensor({damaged, 0.0}), at::tensor({0.0, damaged})})
        EXPECT_THROW(sample(logits, {.temperature = temperature}, random), Error);
  EXPECT_THROW(sample(at::full({3}, -INFINITY), {}, random), Error);
  EXPECT_EQ(sample(at::tensor({0.0, -INFINITY}), {.temperature = 1e-300}, random), 0);
}

}  // namespace
}  // namespace lapse
