#include "lapse/ops/dense/total.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/logistic.h"

namespace lapse {
namespace {

using at::Tensor;

/// What `f` gives on 1, 2 and 3 threads must have the same bits.
template <class F>
Tensor same_on_all_threads(const F& f) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = f();
  for (const int more : {2, 3}) {
    at::set_num_threads(more);
    EXPECT_TRUE(at::equal(f(), one)) << more << " threads";
  }
  at::set_num_threads(threads);
  return one;
}

TEST(Total, IsTheSameOnAnyNumberOfThreads) {
  for (const int64_t n : {0, 1, 32767, 32768, 49151, 70001, 1 << 20}) {
    const Tensor x = at::randn({n});
    const Tensor sum = same_on_all_threads([&] { return total(x); });
    EXPECT_EQ(sum.dim(), 0);
    // Each addition rounds by 2^-24 of a partial sum; libtorch adds in several lanes and levels.
    EXPECT_NEAR(sum.item<double>(), x.to(at::kDouble).sum().item<double>(), 1e-6 * x.abs().sum().item<double>()) << n;
  }
}

TEST(Total, HasTheGradientOfASum) {
  const Tensor x = at::randn({300, 250}).t().set_requires_grad(true);  // not contiguous
  (total(x) * 3).backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({250, 300}, 3.f)));
}

TEST(Total, GivesABiasOfManyRowsItsGradient) {
  const Tensor x = at::randn({70001, 3}), weight = at::randn({3}), grad = at::randn({70001});
  const auto gradient_of_bias = [&] {
    const Tensor b = at::zeros({1}).set_requires_grad(true), w = weight.clone().set_requires_grad(true);
    logistic(x, w, b, {.bound = 8, .divisor = 2, .bias = 0.5}).backward(grad);
    return lapse::cat({b.grad(), w.grad()});
  };
  const Tensor found = same_on_all_threads(gradient_of_bias);
  const Tensor s = at::sigmoid(x.to(at::kDouble).matmul(weight.to(at::kDouble)) / 2);
  const Tensor each = grad.to(at::kDouble) * 8 * s * (1 - s);
  EXPECT_NEAR(found[0].item<double>(), (each * 0.5).sum().item<double>(), 1e-5 * each.abs().sum().item<double>());
}

}  // namespace
}  // namespace lapse
