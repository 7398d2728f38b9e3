// The test device itself, without which a test on it would prove nothing.
#include "lapse/ops/aten.h"
#include "lapse/ops/graph.h"
#include "lapse/ops/second_device_testing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace lapse {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return at::sin(at::arange(n, at::kFloat)).view(shape);
}

TEST(SecondDevice, ComputesAsTheCpuDoes) {
  const Tensor a = numbers({3, 4}), b = numbers({4, 5}), index = at::tensor({2, 0}, at::kLong);
  const auto result = [&](const at::Device& device) {
    const Tensor x = a.to(device), y = b.to(device);
    Tensor z = at::matmul(x, y).index_select(0, index.to(device));
    z.narrow(1, 1, 2).mul_(2).add_(at::ones({2}, z.options()));
    z[1].zero_();
    return lapse::cat({z, at::where(z > 0, z, -1).t().reshape({2, 5})});
  };
  const Tensor there = result(second_device());
  EXPECT_EQ(there.device(), second_device());
  EXPECT_TRUE(there.to(at::kCPU).equal(result(at::kCPU)));
  EXPECT_EQ(there.sum().item<float>(), result(at::kCPU).sum().item<float>());
}

TEST(SecondDevice, HasGradients) {
  const auto gradients = [](const at::Device& device) {
    const Tensor x = numbers({3, 4}).to(device).requires_grad_(true),
                 w = numbers({2, 4}).to(device).requires_grad_(true);
    const Tensor y =
        at::softmax(at::linear(x, w), 1).index_select(0, at::tensor({2, 0, 2}, x.options().dtype(at::kLong)));
    (y * y).sum().backward();
    return lapse::cat({x.grad(), w.grad()});
  };
  const Tensor there = gradients(second_device());
  EXPECT_EQ(there.device(), second_device());
  EXPECT_TRUE(there.to(at::kCPU).equal(gradients(at::kCPU)));
}

TEST(SecondDevice, RefusesTensorsOfTheCpu) {
  const Tensor here = numbers({3}), there = here.to(second_device()), index = at::tensor({1}, at::kLong);
  EXPECT_THROW(there + here, c10::Error);
  EXPECT_THROW(here + there, c10::Error);
  EXPECT_THROW(lapse::cat({there, here}), c10::Error);
  EXPECT_THROW(there.index_select(0, index), c10::Error);
  EXPECT_THROW(here.index_select(0, index.to(second_device())), c10::Error);
  EXPECT_TRUE((there + here[2]).to(at::kCPU).equal(here + here[2]));  // as libtorch has it
}

TEST(SecondDevice, RefusesGeneratorsOfTheCpu) {
  const Tensor x = at::empty({3}, at::TensorOptions(second_device()));
  EXPECT_THROW(x.bernoulli_(0.5, at::detail::createCPUGenerator(1)), c10::Error);
}

TEST(SecondDeviceDeathTest, HasMemoryThatTheHostCannotRead) {
  const Tensor x = at::ones({3}, at::TensorOptions(second_device()));
  const volatile float* data = x.const_data_ptr<float>();
  EXPECT_DEATH((void)*data, "");
}

TEST(SecondDevice, RecordsAGraphAndDoesItAgain) {
  const Tensor x = numbers({3}).to(second_device()), one = at::ones({3}), before = x.to(at::kCPU);
  Tensor y;
  const auto graph = make_graph(second_device());
  graph->record([&] {
    x.add_(at::ones({3}, x.options()).mul(2));
    y = at::zeros({3}, x.options()).copy_(one, /*non_blocking=*/true) + x;
  });
  EXPECT_TRUE(x.to(at::kCPU).equal(before));  // nothing was done yet
  EXPECT_TRUE(y.to(at::kCPU).isnan().all().item<bool>());
  for (int i = 1; i <= 2; ++i) {
    one.fill_(i);
    graph->replay();
    EXPECT_TRUE(x.to(at::kCPU).equal(before + 2 + (i - 1) * 2));
    EXPECT_TRUE(y.to(at::kCPU).equal(x.to(at::kCPU) + i));
  }
}

TEST(SecondDevice, DoesNotWaitWhileItRecords) {
  const Tensor x = numbers({3}).to(second_device());
  const auto graph = make_graph(second_device());
  EXPECT_THROW(graph->record([&] { x.sum().item<float>(); }), c10::Error);
  EXPECT_THROW(graph->record([&] { at::nonzero(x); }), c10::Error);
  x.sum().item<float>();  // afterwards it may
  EXPECT_THROW(make_graph(at::kCPU), c10::Error);
}

}  // namespace
}  // namespace lapse
