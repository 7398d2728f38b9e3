#include "lapse/nn/buckets.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

// The formula in whole numbers: the largest k with (farthest/e)^k <= (r/e)^(n-e), for farthest = e 2^step.
int64_t slow_bucket(int64_t r, int64_t farthest, bool both_ways) {
  const int64_t n = both_ways ? 16 : 32, e = n / 2, offset = both_ways && r > 0 ? 16 : 0;
  const int64_t distance = both_ways ? std::abs(r) : std::max<int64_t>(-r, 0);
  if (distance < e) return offset + distance;
  int64_t step = 0;
  while (e << step < farthest) ++step;
  int64_t k = 0;
  // (distance / e)^(n-e) >= 2^(step (k+1)), as long double: exact for powers of two, far from equality elsewhere.
  const auto power = std::pow(static_cast<long double>(distance) / e, static_cast<long double>(n - e));
  while (e + k < n - 1 && power >= std::pow(2.0L, static_cast<long double>(step * (k + 1)))) ++k;
  return offset + e + k;
}

TEST(Buckets, FollowTheFormula) {
  for (const bool both_ways : {false, true})
    for (const int64_t farthest : {32, 128, 2048})
      for (int64_t r = -3000; r <= 3000; ++r)
        EXPECT_EQ(bucket_of(r, farthest, both_ways), slow_bucket(r, farthest, both_ways)) << r << " of " << farthest;
  // Where buckets begin, as worked out by hand.
  EXPECT_EQ(bucket_of(0, 128, true), 0);
  EXPECT_EQ(bucket_of(-7, 128, true), 7);
  EXPECT_EQ(bucket_of(-8, 128, true), 8);
  EXPECT_EQ(bucket_of(-12, 128, true), 9);  // ln(12/8) / ln 16 · 8 = 1.17
  EXPECT_EQ(bucket_of(-16, 128, true), 10);
  EXPECT_EQ(bucket_of(16, 128, true), 26);
  EXPECT_EQ(bucket_of(-100000, 128, true), 15);
  EXPECT_EQ(bucket_of(1, 128, false), 0);
  EXPECT_EQ(bucket_of(-112, 128, false), 30);
  EXPECT_EQ(bucket_of(-113, 128, false), 31);
}

TEST(Buckets, BecomeABiasOfEachAge) {
  const at::Tensor table = at::arange(64, at::kDouble).view({32, 2}).set_requires_grad(true);
  for (const auto& [farthest, both_ways] : {std::pair{128, false}, {128, true}, {17, false}, {600, true}}) {
    const at::Tensor bias = bias_by_age(table, buckets_by_age(farthest, both_ways));
    const int64_t first = both_ways ? -farthest : 0;
    ASSERT_EQ(bias.sizes(), at::IntArrayRef({2, farthest + 1 - first}));
    for (int64_t age = first; age <= farthest; ++age)
      for (int64_t h = 0; h < 2; ++h)
        EXPECT_EQ(bias[h][age - first].item<double>(), 2 * bucket_of(-age, farthest, both_ways) + h) << age;
    // What is older or younger has the last column's: the operators clamp ages.
    EXPECT_EQ(bucket_of(-farthest - 1, farthest, both_ways), bucket_of(-farthest, farthest, both_ways));
    EXPECT_EQ(bucket_of(farthest + 1, farthest, both_ways), bucket_of(farthest, farthest, both_ways));
    const at::NoGradGuard no_grad;  // a token's, by a loop of its own
    const at::Tensor few = bias_by_age(table.to(at::kFloat), buckets_by_age(farthest, both_ways));
    EXPECT_TRUE(at::equal(few, bias.to(at::kFloat)));
    const at::AutoGradMode gradients(true);
    table.mutable_grad().reset();
    bias.sum().backward();
    for (int64_t b = 0; b < 32; ++b) {
      int64_t ages = 0;
      for (int64_t age = first; age <= farthest; ++age) ages += bucket_of(-age, farthest, both_ways) == b;
      EXPECT_EQ(table.grad()[b][0].item<double>(), ages) << b;
    }
  }
}

TEST(Buckets, ATableOfAnotherSizeIsRefused) {
  for (const bool gradients : {true, false}) {
    at::AutoGradMode mode(gradients);
    EXPECT_THROW(bias_by_age(at::ones({8, 2}), buckets_by_age(17, false)), c10::Error);
  }
}

}  // namespace
}  // namespace lapse
