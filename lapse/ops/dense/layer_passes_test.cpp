// Norms and gates against libtorch's in float64, forward and backward, on every instruction set.
#include "lapse/ops/dense/layer_passes.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/dense/layer_norm.h"
#include "lapse/ops/dense/rms_norm.h"
#include "lapse/ops/dense/swiglu.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr double kEpsilon = 1e-5;
constexpr double kTolerance = 1e-5;  // some roundings of values of up to 10

double largest(const Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

TEST(NormaliseSum, IsTheNormOfASum) {
  for (const int64_t target : InstructionSet::all())
    for (const int64_t n : {1, 5, 16, 67, 256}) {
      const InstructionSet scope(target);
      Random random(n, "norm");
      const Tensor all = random_normal({4, n}, random).to(at::kFloat), wide = all.to(at::kDouble);
      auto of = [&](bool bias) {
        Tensor y = at::empty({n}, at::kFloat);
        auto* line = all.const_data_ptr<float>();
        normalise_sum(line, line + n, line + 2 * n, bias ? line + 3 * n : nullptr, kEpsilon, n,
                      y.mutable_data_ptr<float>());
        return y.to(at::kDouble);
      };
      const Tensor sum = wide[0] + wide[1];
      EXPECT_LT((of(true) - at::layer_norm(sum, {n}, wide[2], wide[3], kEpsilon)).abs().max().item<double>(),
                kTolerance)
          << "n " << n << ", target " << target;
      EXPECT_LT((of(false) - at::rms_norm(sum, {n}, wide[2], kEpsilon)).abs().max().item<double>(), kTolerance)
          << "n " << n << ", target " << target;
    }
}

/// f's result and gradients by each of its two inputs, for the gradient dy of the result.
template <class F>
std::vector<Tensor> derive(const F& f, const Tensor& a, const Tensor& b, const Tensor& dy) {
  const Tensor x = a.detach().requires_grad_(), y = b.detach().requires_grad_(), z = f(x, y);
  z.backward(dy);
  return {z.detach(), x.grad(), y.grad()};
}

/// float32 results of f against float64 results of `expected`; sums over `rows` rows round so much more.
template <class F, class G>
void expect_same(const F& f, const G& expected, const Tensor& a, const Tensor& b, const Tensor& dy, int64_t rows) {
  const auto got = derive(f, a, b, dy);
  const auto wanted = derive(expected, a.to(at::kDouble), b.to(at::kDouble), dy.to(at::kDouble));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(got[i].sizes(), wanted[i].sizes());
    EXPECT_LE(largest(got[i] - wanted[i]), kTolerance * std::sqrt(static_cast<double>(rows))) << "result " << i;
  }
}

Tensor normal(at::IntArrayRef shape, Random& random) { return random_normal(shape, random).to(at::kFloat); }

/// LayerNorm of x + more (of x alone if that is undefined), and the gradients of all, for the gradient dy of the
/// result.
std::vector<Tensor> norm_of_sum(const std::vector<Tensor>& given, const Tensor& dy, bool ours) {
  std::vector<Tensor> in;
  for (const auto& each : given) in.push_back(each.defined() ? each.detach().requires_grad_() : each);
  const Tensor &x = in[0], &more = in[1], &weight = in[2], &bias = in[3];
  const Tensor y = ours ? layer_norm(x, more, weight, bias, kEpsilon)
                        : at::layer_norm(more.defined() ? x + more : x, weight.sizes(), weight, bias, kEpsilon);
  y.backward(dy);
  std::vector<Tensor> found = {y.detach()};
  for (const auto& each : in) found.push_back(each.defined() ? each.grad() : at::empty({0}));
  return found;
}

void expect_libtorchs(const std::vector<Tensor>& given, const Tensor& dy, int64_t rows) {
  std::vector<Tensor> wide;
  for (const auto& each : given) wide.push_back(each.defined() ? each.to(at::kDouble) : each);
  const auto got = norm_of_sum(given, dy, true), wanted = norm_of_sum(wide, dy.to(at::kDouble), false);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), wanted[i].sizes());
    EXPECT_LE(largest(got[i] - wanted[i]), kTolerance * std::sqrt(static_cast<double>(rows))) << "result " << i;
  }
}

TEST(LayerNorm, IsLibtorchsOfTheSum) {
  for (const int64_t target : InstructionSet::all())
    for (const int64_t n : {1, 5, 16, 67, 192})  // two features may be so near that no float32 tells their norm
      for (const int64_t rows : {0, 1, 3, 65, 200}) {
        SCOPED_TRACE("n " + std::to_string(n) + ", rows " + std::to_string(rows));
        const InstructionSet scope(target);
        Random random(n, "layer norm");
        // Means far from 0 and rows of other sizes, as residual connections give.
        const Tensor x = normal({rows, n}, random) + 3 * normal({rows, 1}, random),
                     more = 2 * normal({rows, n}, random);
        const Tensor w = normal({n}, random), b = normal({n}, random), dy = normal({rows, n}, random);
        expect_libtorchs({x, more, w, b}, dy, rows);
        expect_libtorchs({x, Tensor(), w, b}, dy, rows);
        const at::NoGradGuard no_grad;
        const Tensor wanted = at::layer_norm((x + more).to(at::kDouble), {n}, w.to(at::kDouble), b.to(at::kDouble));
        EXPECT_LE(largest(layer_norm(x, more, w, b, kEpsilon) - wanted), kTolerance);
      }
}

TEST(LayerNorm, ReadsAnyLayoutOnAnyNumberOfThreads) {
  Random random(1, "layer norm");
  const Tensor x = normal({7, 640, 11}, random).transpose(1, 2),
               more = normal({1, 11, 640}, random).expand({7, 11, 640});
  const Tensor w = normal({1280}, random).slice(0, 0, 1280, 2), b = normal({1}, random).expand({640});
  for (const Tensor& dy : {normal({640, 11, 7}, random).permute({2, 1, 0}), at::ones({1}).expand({7, 11, 640})}) {
    expect_libtorchs({x, more, w, b}, dy, 77);
    std::vector<std::vector<Tensor>> results;
    for (const int threads : {1, 2, 3}) {
      const Threads scope(threads);
      results.push_back(norm_of_sum({x, more, w, b}, dy, true));
    }
    for (const size_t other : {1, 2})
      for (size_t i = 0; i < results[0].size(); ++i)
        EXPECT_TRUE(results[0][i].equal(results[other][i])) << "result " << i;
  }
  EXPECT_THROW(layer_norm(x, {}, w.to(at::kDouble), b, kEpsilon), c10::Error);
  EXPECT_THROW(layer_norm(x, {}, w, b.narrow(0, 0, 8), kEpsilon), c10::Error);
  EXPECT_THROW(layer_norm(x, x.narrow(0, 0, 3), w, b, kEpsilon), c10::Error);
}

TEST(RmsNorm, IsLibtorchs) {
  const auto f = [](const Tensor& x, const Tensor& w) { return rms_norm(x, w, kEpsilon); };
  const auto expected = [](const Tensor& x, const Tensor& w) { return at::rms_norm(x, w.sizes(), w, kEpsilon); };
  for (const int64_t target : InstructionSet::all())
    for (const int64_t n : {1, 5, 16, 67, 192})
      for (const int64_t rows : {0, 1, 3, 65, 200}) {
        SCOPED_TRACE("n " + std::to_string(n) + ", rows " + std::to_string(rows));
        const InstructionSet scope(target);
        Random random(n, "norm");
        const Tensor x = normal({rows, n}, random), w = normal({n}, random), dy = normal({rows, n}, random);
        expect_same(f, expected, x, w, dy, rows);
        const at::NoGradGuard no_grad;
        EXPECT_LE(largest(f(x, w) - expected(x.to(at::kDouble), w.to(at::kDouble))), kTolerance);
      }
}

TEST(RmsNorm, ReadsAnyLayoutOnAnyNumberOfThreads) {
  const auto f = [](const Tensor& x, const Tensor& w) { return rms_norm(x, w, kEpsilon); };
  const auto expected = [](const Tensor& x, const Tensor& w) { return at::rms_norm(x, w.sizes(), w, kEpsilon); };
  Random random(1, "norm");
  const Tensor x = normal({7, 640, 11}, random).transpose(1, 2), w = normal({1280}, random).slice(0, 0, 1280, 2);
  for (const Tensor& dy : {normal({640, 11, 7}, random).permute({2, 1, 0}), at::ones({1}).expand({7, 11, 640})}) {
    expect_same(f, expected, x, w, dy, 77);
    std::vector<std::vector<Tensor>> results;
    for (const int threads : {1, 2}) {
      const Threads scope(threads);
      results.push_back(derive(f, x, w, dy));
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(results[0][i].equal(results[1][i])) << "result " << i;
  }
  EXPECT_THROW(rms_norm(x, w.to(at::kDouble), kEpsilon), c10::Error);
  EXPECT_THROW(rms_norm(x, w.narrow(0, 0, 8), kEpsilon), c10::Error);
}

TEST(Swiglu, IsLibtorchs) {
  const auto expected = [](const Tensor& a, const Tensor& x) { return at::silu(a) * x; };
  for (const int64_t target : InstructionSet::all())
    for (const int64_t n : {0, 1, 15, 16, 1003, 40000}) {
      SCOPED_TRACE("n " + std::to_string(n));
      const InstructionSet scope(target);
      Random random(n, "gate");
      // Gates far out as well, where the exponential is 0 or infinite.
      const Tensor a = normal({n}, random) * at::exp(normal({n}, random)), x = normal({n}, random);
      expect_same(swiglu, expected, a, x, normal({n}, random), 10);
      const Tensor far = at::tensor({-1e4f, -100.f, -88.f, 88.f, 100.f, 1e4f}).repeat({n});
      expect_same(swiglu, expected, far, at::ones_like(far), at::ones_like(far), 1);
    }
  Random random(1, "gate");
  const Tensor a = normal({6, 9}, random).t(), x = normal({9, 6}, random);
  expect_same(swiglu, expected, a, x, at::ones({1}).expand({9, 6}), 1);
  EXPECT_THROW(swiglu(a, x.t()), c10::Error);
  EXPECT_TRUE(swiglu(at::full({20}, NAN), at::ones({20})).isnan().all().item<bool>());
}

TEST(LogSumExp, IsLibtorchs) {
  for (const int64_t target : InstructionSet::all())
    for (const int64_t n : {1, 5, 16, 67, 1000}) {
      SCOPED_TRACE("n " + std::to_string(n) + ", target " + std::to_string(target));
      const InstructionSet scope(target);
      Random random(n, "logits");
      const auto got = [&](const Tensor& x) { return static_cast<double>(log_sum_exp(x.const_data_ptr<float>(), n)); };
      for (const double scale : {1., 1000.}) {  // with the second most exponentials are 0
        const Tensor x = normal({n}, random) * scale;
        const auto wanted = at::logsumexp(x.to(at::kDouble), 0).item<double>();
        EXPECT_NEAR(got(x), wanted, kTolerance + 1e-6 * std::abs(wanted));
      }
      EXPECT_TRUE(std::isnan(got(normal({n}, random).index_fill(0, at::zeros({1}, at::kLong), NAN))));
    }
}

TEST(LayerPasses, LeaveFloat64ToLibtorch) {
  Random random(1, "double");
  const Tensor x = random_normal({3, 8}, random), w = random_normal({8}, random), y = random_normal({3, 8}, random);
  EXPECT_TRUE(rms_norm(x, w, kEpsilon).equal(at::rms_norm(x, {8}, w, kEpsilon)));
  EXPECT_TRUE(layer_norm(x, y, w, w, kEpsilon).equal(at::layer_norm(x + y, {8}, w, w, kEpsilon)));
  EXPECT_TRUE(swiglu(x, y).equal(at::silu(x) * y));
}

}  // namespace
}  // namespace lapse
