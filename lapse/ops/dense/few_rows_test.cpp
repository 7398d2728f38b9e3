#include "lapse/ops/dense/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/poison_testing.h"

namespace lapse {
namespace {

using at::Tensor;

/// As bits, so that −0 is not 0.
bool same_bits(const Tensor& a, const Tensor& b) {
  const auto whole = a.scalar_type() == at::kBFloat16 ? at::kShort : at::kInt;
  return a.scalar_type() == b.scalar_type() && at::equal(a.contiguous().view(whole), b.contiguous().view(whole));
}

TEST(As, RoundsAsLibtorchDoes) {
  const float tie = 1 + 1 / 256.f, far = std::numeric_limits<float>::max(), least = 1e-40f;
  const Tensor odd = at::tensor({tie, std::nextafter(tie, 2.f), -tie, 0.f, -0.f, far, least, -least, INFINITY});
  const Tensor x = lapse::cat({odd, at::randn({131}) * at::exp(at::randn({131}) * 20)});
  for (const bool gradients : {false, true}) {
    const at::AutoGradMode mode(gradients);
    const Tensor rounded = as(x, at::kBFloat16);
    EXPECT_TRUE(same_bits(rounded, x.to(at::kBFloat16)));
    EXPECT_TRUE(same_bits(as(rounded, at::kFloat), rounded.to(at::kFloat)));
    EXPECT_TRUE(as(at::full({2}, NAN), at::kBFloat16).isnan().all().item<bool>());  // whatever its other bits
  }
}

TEST(As, TakesWhateverItIsGiven) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({3, 5, 7});
  EXPECT_TRUE(as(x, at::kFloat).is_same(x));
  EXPECT_TRUE(same_bits(as(x.transpose(0, 2), at::kBFloat16), x.transpose(0, 2).to(at::kBFloat16)));
  EXPECT_EQ(as(x, at::kBFloat16).sizes(), x.sizes());
  EXPECT_EQ(as(at::empty({0, 4}), at::kBFloat16).sizes(), at::IntArrayRef({0, 4}));
  EXPECT_TRUE(at::equal(as(x, at::kDouble), x.to(at::kDouble)));
  const Tensor large = at::randn({1 << 15});
  EXPECT_TRUE(same_bits(as(large, at::kBFloat16), large.to(at::kBFloat16)));
}

TEST(As, KeepsGradients) {
  const Tensor x = at::randn({4}).set_requires_grad(true);
  as(x, at::kBFloat16).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({4})));
}

TEST(EmptyRows, ArePoisonedAsAtEmptyIs) {
  const Poison poison;
  EXPECT_TRUE(empty_rows({3, 5}).isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(empty_rows({4}, at::kLong), at::empty({4}, at::kLong)));
}

}  // namespace
}  // namespace lapse
