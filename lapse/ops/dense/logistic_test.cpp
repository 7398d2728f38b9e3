// The logistic function of a product against libtorch's in float64: a few rows, many, and gradients.
#include "lapse/ops/dense/logistic.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {
namespace {

using at::Tensor;

const LogisticScale kScale{.bound = 1000, .divisor = 8, .bias = 0.5};

Tensor exact(const Tensor& x, const Tensor& weight, const Tensor& b) {
  const Tensor product = x.to(at::kDouble).matmul(weight.to(at::kDouble));
  return at::sigmoid(product / kScale.divisor + b.to(at::kDouble) * kScale.bias) * kScale.bound;
}

TEST(Logistic, IsLibtorchsForFewRowsAndMany) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{7}, kSomeRows, kSomeRows + 3})
    for (const int64_t k : {1, 5, 64, 67}) {
      const Tensor x = at::randn({n, k}), weight = at::randn({k}), b = at::randn({1});
      const at::NoGradGuard no_grad;
      const Tensor y = logistic(x, weight, b, kScale);
      ASSERT_EQ(y.sizes(), at::IntArrayRef({n}));
      // float32 rounds a sum of k terms: some 1e-6 of an exponent, whose slope is 1000 / 4.
      EXPECT_TRUE(at::allclose(y.to(at::kDouble), exact(x, weight, b), 1e-6, 5e-4)) << n << " x " << k;
      const Tensor lines = at::randn({n, 2 * k}).narrow(1, 0, k);  // not contiguous
      EXPECT_TRUE(
          at::allclose(logistic(lines, weight, b, kScale).to(at::kDouble), exact(lines, weight, b), 1e-6, 5e-4));
    }
}

TEST(Logistic, HasLibtorchsGradients) {
  const int64_t n = 13, k = 6;
  const std::vector<Tensor> leaves = {at::randn({n, k}, at::kDouble), at::randn({k}, at::kDouble),
                                      at::randn({1}, at::kDouble)};
  const Tensor dy = at::randn({n}, at::kDouble);
  std::vector<std::vector<Tensor>> gradients;
  for (const bool ours : {true, false}) {
    std::vector<Tensor> x;
    for (const Tensor& leaf : leaves)
      x.push_back(leaf.to(ours ? at::kFloat : at::kDouble).clone().set_requires_grad(true));
    (ours ? logistic(x[0], x[1], x[2], kScale) : exact(x[0], x[1], x[2])).backward(dy.to(x[0].scalar_type()));
    gradients.emplace_back();
    for (const Tensor& leaf : x) gradients.back().push_back(leaf.grad().to(at::kDouble));
  }
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_TRUE(at::allclose(gradients[0][i], gradients[1][i], 1e-6, 1e-4)) << i;  // float32's, of numbers up to 100
}

}  // namespace
}  // namespace lapse
