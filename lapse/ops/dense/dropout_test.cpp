#include "lapse/ops/dense/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

TEST(Dropout, ScalesWhatItKeepsAndIsOfTheSeed) {
  const at::Tensor x = at::ones({100, 100});
  const at::Tensor y = dropped(x, 0.25, 5);
  EXPECT_TRUE(at::logical_or(y == 0, y == 1 / 0.75f).all().item<bool>());
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.03);  // of 10,000 draws: 5 standard deviations of 0.6 %
  EXPECT_TRUE(y.equal(dropped(x, 0.25, 5)));
  EXPECT_FALSE(y.equal(dropped(x, 0.25, 6)));
}

TEST(Dropout, DrawsTheSameOnEveryDevice) {
  const at::Tensor x = at::arange(60, at::kFloat).view({3, 20}).t();
  const at::Tensor there = dropped(x.to(second_device()), 0.5, 5);
  EXPECT_EQ(there.device(), second_device());
  EXPECT_TRUE(there.to(at::kCPU).equal(dropped(x, 0.5, 5)));
}

}  // namespace
}  // namespace lapse
