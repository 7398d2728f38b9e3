// Sums of lines against libtorch's products of bits, forward and backward.
#include "lapse/ops/dense/bag.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {
namespace {

using at::Tensor;

/// Bags [n, most] of different numbers below `lines`, some empty.
Tensor random_bags(int64_t n, int64_t most, int64_t lines, Random& random) {
  Tensor bags = at::full({n, most}, -1, at::kLong);
  auto* to = bags.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const auto count = static_cast<int64_t>(random.below(std::min(most, lines) + 1));
    const auto begin = static_cast<int64_t>(random.below(lines));
    for (int64_t j = 0; j < count; ++j) to[i * most + (j * 7 + i) % most] = (begin + j) % lines;
  }
  return bags;
}

/// [n, lines]: 1 where a bag names the line.
Tensor bits_of(const Tensor& bags, int64_t lines) {
  return (bags.unsqueeze(-1) == at::arange(lines, at::kLong)).sum(1).to(at::kDouble);
}

TEST(BagSums, AgreeWithAProductOfBits) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const auto& [n, most, lines, width] :
         {std::array<int64_t, 4>{1, 1, 1, 1}, {700, 5, 54, 64}, {300, 13, 97, 5}}) {
      Random random(n, "bags");
      const Tensor bags = random_bags(n, most, lines, random), bits = bits_of(bags, lines);
      Tensor weight = random_normal({lines, width}, random).to(type).requires_grad_(true);
      const Tensor grad = random_normal({n, width}, random).to(type);
      const Tensor y = bag_sums(weight, bags);
      torch::autograd::backward({y}, {grad});
      const double eps = std::ldexp(1, type == at::kFloat ? -23 : -52);
      const Tensor w = weight.detach().to(at::kDouble);
      EXPECT_LE((y.detach() - bits.matmul(w)).abs().max().item<double>(), 4 * most * eps);
      EXPECT_LE((weight.grad() - bits.t().matmul(grad.to(at::kDouble))).abs().max().item<double>(),
                4 * std::sqrt(n) * eps * 4);
    }
}

TEST(BagSums, DoNotDependOnThreads) {
  Random random(3, "bags");
  const Tensor bags = random_bags(1000, 9, 200, random).view({10, 100, 9});
  const auto gradient = [&](int threads) {
    const Threads set(threads);
    Random same(4, "weight");
    Tensor weight = random_normal({200, 48}, same).to(at::kFloat).requires_grad_(true);
    const Tensor y = bag_sums(weight, bags);
    torch::autograd::backward({y}, {y.detach().sin()});
    return weight.grad();
  };
  EXPECT_TRUE(gradient(1).equal(gradient(2)));
}

TEST(BagSums, NameWhatDoesNotFit) {
  const Tensor weight = at::zeros({3, 4});
  EXPECT_THROW(bag_sums(weight, at::zeros({2, 2})), c10::Error);
  EXPECT_THROW(bag_sums(weight, at::full({2, 2}, 3, at::kLong)), c10::Error);
}

}  // namespace
}  // namespace lapse
