// Optimisers against their formulas in double precision.
#include "lapse/train/optimiser.h"
#include "lapse/ops/aten.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace lapse {
namespace {

TEST(LearningRate, WarmsUpThenStaysOrFallsToZero) {
  OptimiserConfig config;
  config.rate = 0.5, config.warmup = 10;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 100), 0.05);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9, 100), 0.45);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 99, 100), 0.5);
  config.schedule = "cosine";
  EXPECT_DOUBLE_EQ(learning_rate(config, 5, 110), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 110), 0.5);
  EXPECT_NEAR(learning_rate(config, 60, 110), 0.25, 1e-15);
  EXPECT_NEAR(learning_rate(config, 110, 110), 0, 1e-15);
  config.warmup = 0;
  EXPECT_GT(learning_rate(config, 1, 10), 0.45);
}

/// Five steps of an optimiser on one weight whose gradient at step n is sin(n) - 0.3: against `expected`, which gets
/// the weight, its gradient and n, keeps its own state and returns the new weight.
void compare(const OptimiserConfig& config, const std::function<double(double, double, int)>& expected) {
  at::Tensor weight = at::full({1}, 0.7f).set_requires_grad(true);
  Optimiser optimiser(config, {{"weight", &weight}});
  double w = 0.7f;
  for (int n = 1; n <= 5; ++n) {
    const double gradient = std::sin(n) - 0.3;
    optimiser.zero_gradients();
    weight.mutable_grad().fill_(gradient);
    optimiser.step(0.1);
    w = expected(w, gradient, n);
    EXPECT_NEAR(weight.item<double>(), w, 1e-6) << config.name << " step " << n;  // float32 has 6e-8
  }
  EXPECT_EQ(optimiser.steps(), 5);
}

OptimiserConfig named(const std::string& name, double weight_decay) {
  OptimiserConfig config;
  config.name = name, config.weight_decay = weight_decay;
  return config;
}

double adam_step(double w, double g, int n, double& m, double& v) {
  m = 0.9 * m + 0.1 * g, v = 0.999 * v + 0.001 * g * g;
  return w - 0.1 * (m / (1 - std::pow(0.9, n))) / (std::sqrt(v / (1 - std::pow(0.999, n))) + 1e-8);
}

TEST(Optimiser, Adam) {
  double m = 0, v = 0;
  compare(named("adam", 0.05), [&](double w, double g, int n) { return adam_step(w, g + 0.05 * w, n, m, v); });
}

TEST(Optimiser, AdamW) {
  double m = 0, v = 0;
  compare(named("adamw", 0.05), [&](double w, double g, int n) { return adam_step(w * (1 - 0.1 * 0.05), g, n, m, v); });
}

TEST(Optimiser, RmsProp) {
  double square = 0;
  compare(named("rmsprop", 0.05), [&](double w, double g, int) {
    g += 0.05 * w;
    square = 0.99 * square + 0.01 * g * g;
    return w - 0.1 * g / (std::sqrt(square) + 1e-8);
  });
}

TEST(Optimiser, SgdWithAndWithoutMomentum) {
  compare(named("sgd", 0.05), [](double w, double g, int) { return w - 0.1 * (g + 0.05 * w); });
  auto config = named("sgd", 0);
  config.momentum = 0.9;
  double velocity = 0;
  compare(config, [&](double w, double g, int) {
    velocity = 0.9 * velocity + g;
    return w - 0.1 * velocity;
  });
}

TEST(Optimiser, ClipsTheGlobalNorm) {
  at::Tensor a = at::zeros({2}).set_requires_grad(true), b = at::zeros({1}).set_requires_grad(true);
  OptimiserConfig config;
  config.clip = 1;
  Optimiser optimiser(config, {{"a", &a}, {"b", &b}});
  a.mutable_grad().copy_(at::tensor({3.f, 4.f}));
  b.mutable_grad().fill_(12);
  const auto clip = [&] {
    const auto norm = optimiser.gradient_norm().item<double>();
    optimiser.clip(norm);
    return norm;
  };
  EXPECT_NEAR(clip(), 13, 1e-5);
  EXPECT_NEAR(b.grad().item<double>(), 12.0 / 13, 1e-6);
  EXPECT_NEAR(a.grad()[0].item<double>(), 3.0 / 13, 1e-6);
  EXPECT_NEAR(clip(), 1, 1e-5);
  EXPECT_NEAR(b.grad().item<double>(), 12.0 / 13, 1e-6) << "a norm within the limit is left alone";
}

}  // namespace
}  // namespace lapse
