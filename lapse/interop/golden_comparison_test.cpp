#include "lapse/interop/golden_comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

TEST(GoldenComparison, ErrorsAreRelativeToTheTensorUnlessItIsZeroButForRounding) {
  GoldenComparison comparison;
  const auto compare = [&](const char* what, const char* name, double ours, double theirs) {
    comparison.compare(what, name, at::full({2}, ours, at::kDouble), at::full({2}, theirs, at::kDouble));
  };
  compare("grad", "nothing", 3e-17, -1e-17);  // e.g. of queries that all see equal rows
  compare("grad", "small", 0.02, 0.01);
  compare("grad", "large", 4, 4);
  compare("loss", "loss", 2e-17, 1e-17);  // another kind, with a size of its own
  compare("span", "zero", 0, 0);
  const auto errors = comparison.errors();
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].what, "grad");
  EXPECT_EQ(errors[0].tensor, "small");
  EXPECT_EQ(errors[0].tensors, 3);
  EXPECT_NEAR(errors[0].error, 1, 1e-12);
  EXPECT_NEAR(errors[1].error, 1, 1e-12);
  EXPECT_EQ(errors[2].error, 0);
  compare("grad", "not a number", NAN, 1);
  EXPECT_TRUE(std::isnan(comparison.errors()[0].error));
}

TEST(GoldenComparison, RoundingAloneIsNoError) {
  GoldenComparison comparison;
  comparison.compare("grad", "nothing", at::full({2}, 3e-17, at::kDouble), at::full({2}, -1e-17, at::kDouble));
  comparison.compare("grad", "large", at::full({2}, 4., at::kDouble), at::full({2}, 4., at::kDouble));
  EXPECT_LT(comparison.errors()[0].error, 1e-13);
  // A gradient that is small is compared with itself, as that of spans with a small alpha is.
  comparison.compare("grad", "spans", at::full({2}, 2e-10, at::kDouble), at::full({2}, 1e-10, at::kDouble));
  EXPECT_NEAR(comparison.errors()[0].error, 1, 1e-9);
}

}  // namespace
}  // namespace lapse
