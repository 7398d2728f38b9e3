#include "lapse/ops/without_autograd.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <utility>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/rounded_linear.h"

namespace lapse {
namespace {

using at::Tensor;

/// torch.autocast("cpu", torch.bfloat16).
struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(InsideKernel, ProductsAreOfTheirInputsType) {
  const Tensor a = at::ones({3, 4}), b = at::ones({4, 2});
  const Autocast within;
  EXPECT_EQ(at::mm(a, b).scalar_type(), at::kBFloat16);
  {
    const InsideKernel inside;
    EXPECT_EQ(at::mm(a, b).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(at::mm(a, b).scalar_type(), at::kBFloat16);
}

/// f of two leaves, and their gradients.
template <class F>
std::vector<Tensor> results(const F& f, Tensor a, Tensor b) {
  a = a.detach().requires_grad_(true), b = b.detach().requires_grad_(true);
  const Tensor y = f(a, b);
  y.backward(at::ones_like(y));
  return {y.detach(), a.grad(), b.grad()};
}

template <class F>
void expect_same_within(const F& f, const Tensor& a, const Tensor& b) {
  const auto expected = results(f, a, b);
  const Autocast within;
  const auto got = results(f, a, b);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kFloat) << "tensor " << i;
    EXPECT_TRUE(got[i].equal(expected[i])) << "tensor " << i;
  }
}

TEST(InsideKernel, GradientsOfOurOwnDoNotSeeAutocast) {
  const auto numbers = [](at::IntArrayRef shape) {
    return at::sin(at::arange(c10::multiply_integers(shape)) * 3.).view(shape);
  };
  expect_same_within(rounded_linear, numbers({9, 5}), numbers({7, 5}));
}

}  // namespace
}  // namespace lapse
