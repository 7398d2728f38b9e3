#include "lapse/ops/own_gradient.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// a b and a + b, with an input between them that is absent; `received`: what the backward pass was given last.
std::vector<Tensor> product_and_sum(const Tensor& a, const Tensor& b, Received* received) {
  const auto outputs = below_autograd([&] { return std::vector<Tensor>{a * b, a + b}; });
  return with_gradient({a, Tensor(), b}, outputs, {"product_and_sum", {a, b}, [received](const Received& r) {
                                                     *received = r;
                                                     EXPECT_FALSE(r.gradients[0].requires_grad());
                                                     return std::vector<Tensor>{
                                                         r.gradients[0] * r.saved[1] + r.gradients[1], Tensor(),
                                                         r.gradients[0] * r.saved[0] + r.gradients[1]};
                                                   }});
}

TEST(OwnGradient, GoesToTheInputsThatAreThere) {
  const Tensor a = at::full({2}, 3.).requires_grad_(true), b = at::full({2}, 5.).requires_grad_(true);
  Received received;
  const auto y = product_and_sum(a, b, &received);
  EXPECT_TRUE(y[0].equal(at::full({2}, 15.)) && y[1].equal(at::full({2}, 8.)));
  (y[0] * 2 + y[1]).sum().backward();
  EXPECT_TRUE(a.grad().equal(at::full({2}, 11.))) << a.grad();
  EXPECT_TRUE(b.grad().equal(at::full({2}, 7.))) << b.grad();
  EXPECT_EQ(received.needed, (std::vector<bool>{true, false, true}));
}

TEST(OwnGradient, IsZeroOfAnOutputThatNobodyUsed) {
  const Tensor a = at::full({2}, 3.).requires_grad_(true), b = at::full({2}, 5.);
  Received received;
  product_and_sum(a, b, &received)[0].sum().backward();
  EXPECT_TRUE(received.gradients[1].defined() && received.gradients[1].equal(at::zeros({2})));
  EXPECT_TRUE(a.grad().equal(b));
  EXPECT_EQ(received.needed, (std::vector<bool>{true, false, false}));
  EXPECT_FALSE(b.grad().defined());
}

TEST(OwnGradient, NeedsNoGradient) {
  Received received;
  const auto y = product_and_sum(at::ones({2}), at::ones({2}), &received);
  EXPECT_FALSE(y[0].requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(product_and_sum(at::ones({2}).requires_grad_(true), at::ones({2}), &received)[0].requires_grad());
}

TEST(OwnGradient, RefusesSecondDerivatives) {
  const Tensor a = at::ones({2}).requires_grad_(true);
  Received received;
  const Tensor y = product_and_sum(a, at::ones({2}), &received)[0].sum();
  std::string said;
  try {
    y.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  EXPECT_NE(said.find("product_and_sum: has no second derivatives"), std::string::npos) << said;
}

}  // namespace
}  // namespace lapse
