#include "lapse/nn/positions.h"

#include <gtest/gtest.h>

#include "lapse/core/error.h"
#include "lapse/nn/buckets.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr PositionSizes kSizes = {.width = 8, .heads = 2, .head_dim = 4, .ages = 6, .block = 5, .bucket_distance = 20};

std::unique_ptr<Positions> made(const std::string& name, const PositionSizes& sizes = kSizes) {
  Random random(1, "weights");
  return position_kind(name).make(sizes, random);
}

TEST(Positions, OfAgesAreReadByAttention) {
  const auto positions = made("relative");
  EXPECT_EQ(positions->context(), 0);
  EXPECT_EQ(positions->table().sizes(), (std::vector<int64_t>{6, 4}));
  EXPECT_TRUE(positions->ages().position.is_same(positions->table()));
  EXPECT_FALSE(positions->ages().bias.defined());
  const Tensor h = at::randn({2, 3, 8});
  EXPECT_TRUE(at::equal(positions->added_to(h, at::zeros({2}, at::kLong)), h));
}

TEST(Positions, OfBucketsAreABiasByAge) {
  for (const bool both_ways : {false, true}) {
    PositionSizes sizes = kSizes;
    sizes.both_ways = both_ways;
    const auto positions = made("buckets", sizes);
    EXPECT_EQ(positions->context(), 0);
    EXPECT_FALSE(positions->ages().position.defined());
    const Tensor bias = positions->ages().bias, &table = positions->table();
    const int64_t oldest = 20, first = both_ways ? -oldest : 0;
    ASSERT_EQ(bias.sizes(), (std::vector<int64_t>{2, oldest - first + 1}));
    for (int64_t age = first; age <= oldest; ++age)
      EXPECT_TRUE(at::equal(bias.select(1, age - first), table[bucket_of(-age, oldest, both_ways)])) << age;
  }
}

TEST(Positions, OfTimesAreAddedToEmbeddings) {
  const auto positions = made("absolute");
  EXPECT_EQ(positions->context(), 5);
  EXPECT_FALSE(positions->ages().position.defined());
  EXPECT_FALSE(positions->ages().bias.defined());
  const Tensor h = at::randn({2, 3, 8}), clock = at::tensor({0, 2}, at::kLong);
  const Tensor y = positions->added_to(h, clock);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 3; ++t)
      EXPECT_TRUE(at::equal(y[b][t], h[b][t] + positions->table()[clock[b].item<int64_t>() + t]));
  EXPECT_ANY_THROW(positions->added_to(h, clock + 1));  // time 5 is beyond the table
}

TEST(Positions, OfAgesAloneAreReadInBfloat16) {
  for (const PositionKind& kind : position_table()) {
    const auto positions = made(kind.name);
    positions->to_bfloat16();
    EXPECT_EQ(positions->table().scalar_type(), kind.name == "relative" ? at::kBFloat16 : at::kFloat) << kind.name;
    EXPECT_EQ(kind.windows, positions->context() > 0) << kind.name;
  }
  EXPECT_THROW(position_kind("none"), Error);
}

}  // namespace
}  // namespace lapse
