// Products of many matrices against at::matmul, and their bits with one, two and three threads.
#include "lapse/ops/dense/batched.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {
namespace {

using at::Tensor;

Tensor drawn(at::IntArrayRef shape, int64_t seed, at::ScalarType type = at::kDouble) {
  Random random(seed, "batched");
  Tensor x = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data_ptr<double>()[i] = random.normal();
  return x.to(type);
}

struct Case {
  std::vector<int64_t> leading;
  int64_t m, k, n;
};

TEST(BatchedProduct, IsThatOfMatmulWithItsGradients) {
  for (const auto& [leading, m, k, n] :
       {Case{{1}, 1, 1, 1}, {{2, 3}, 5, 7, 4}, {{1, 1}, 3, 2, 11}, {{0, 2}, 3, 4, 5}, {{3}, 0, 4, 5}, {{2}, 3, 0, 5}}) {
    const auto shape = [&](int64_t rows, int64_t columns) {
      auto all = leading;
      all.insert(all.end(), {rows, columns});
      return all;
    };
    std::vector<Tensor> got, expected;
    for (auto* results : {&got, &expected}) {
      // Not contiguous, and the gradient is expanded.
      Tensor a = drawn(shape(k, m), 1).transpose(-1, -2).requires_grad_(), b = drawn(shape(k, n), 2).requires_grad_();
      const Tensor y = results == &got ? batched_product(a, b) : at::matmul(a, b);
      y.backward(drawn({1, 1}, 3).expand_as(y));
      *results = {y.detach(), a.grad(), b.grad()};
    }
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].sizes(), expected[i].sizes());
      EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-13, 1e-13)) << m << ' ' << k << ' ' << n;
    }
  }
}

// Sums over many rows, as gradients are: MKL shares out a single matrix's among its threads.
TEST(BatchedProduct, HasTheSameBitsWithAnyNumberOfThreads) {
  const auto bits_of = [](int64_t heads, int threads) {
    const Threads some(threads);
    Tensor a = drawn({1, heads, 1536, 49}, 1, at::kFloat).requires_grad_();
    Tensor b = drawn({1, heads, 49, 64}, 2, at::kFloat).requires_grad_();
    const Tensor y = batched_product(a, b);
    y.backward(drawn({1, heads, 1536, 64}, 3, at::kFloat));
    return std::vector<Tensor>{y.detach(), a.grad(), b.grad()};
  };
  for (const int64_t heads : {1, 3})
    for (const int threads : {2, 3}) {
      const auto got = bits_of(heads, threads), expected = bits_of(heads, 1);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << threads << ' ' << i;
    }
}

TEST(BatchedProduct, RefusesWhatDoesNotFit) {
  EXPECT_THROW(batched_product(at::ones({2, 3, 4}), at::ones({2, 3, 4})), c10::Error);
  EXPECT_THROW(batched_product(at::ones({2, 3, 4}), at::ones({3, 4, 3})), c10::Error);
  EXPECT_THROW(batched_product(at::ones({3, 4}), at::ones({4, 3})), c10::Error);
}

}  // namespace
}  // namespace lapse
