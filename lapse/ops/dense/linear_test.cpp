// linear against at::linear in float64, forward and backward, at sizes that no tile divides.
#include "lapse/ops/dense/linear.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/dense/narrow.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/poison_testing.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Linear = Tensors(const Tensor&, const Tensors&, const LinearOptions&);

std::optional<Tensor> given(const Tensor& bias) { return bias.defined() ? std::optional(bias) : std::nullopt; }

Tensors plain_linear(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  Tensors y;
  for (const auto& weight : weights) y.push_back(at::linear(x, weight, given(o.bias)));
  if (o.relu) y[0] = at::relu(y[0]);
  if (o.dropout) y[0] = dropped(y[0], *o.dropout);
  return y;
}

struct Case {
  Tensor x;
  Tensors weights, grads;  // grads: those that come in, one per weight
  LinearOptions options;
  std::string text;
};

Case converted(Case c, at::ScalarType type) {
  c.x = c.x.to(type);
  for (auto* tensors : {&c.weights, &c.grads})
    for (auto& x : *tensors) x = x.to(type);
  if (c.options.bias.defined()) c.options.bias = c.options.bias.to(type);
  return c;
}

/// Normal values: x of `shape` [..., in], a weight for each of `out`; of a single one perhaps bias, relu and dropout.
Case case_of(Random& random, std::vector<int64_t> shape, const std::vector<int64_t>& out, bool bfloat16) {
  auto normal = [&](at::IntArrayRef sizes) { return random_normal(sizes, random).to(at::kFloat); };
  const int64_t in = shape.back();
  Case c{.x = normal(shape)};
  c.text = "x " + std::to_string(c.x.numel() / in) + " x " + std::to_string(in) + ", out";
  for (const int64_t n : out) {
    shape.back() = n;
    c.weights.push_back(normal({n, in}));
    c.grads.push_back(normal(shape));
    c.text.append(" ").append(std::to_string(n));
  }
  c.options.bfloat16 = bfloat16;
  if (out.size() == 1 && random.below(3) > 0) c.options.bias = normal({out[0]});
  if (out.size() == 2 || random.below(2)) return c;
  c.options.relu = true;
  if (random.below(2)) c.options.dropout = {bfloat16 ? 0.5 : 0.3, 5};  // twice a bfloat16 is one
  // No gradient comes to a kink: where rounding, to bfloat16 too, may change the sign.
  const Tensor z = at::linear(c.x, c.weights[0], given(c.options.bias));
  c.grads[0].masked_fill_(z.abs() < 0.1 * std::sqrt(static_cast<double>(in)), 0);
  return c;
}

/// Of some shape; every fourth case has two weights.
Case random_case(uint64_t seed, bool bfloat16 = false) {
  Random random(seed, "linear case");
  const auto m = pick<int64_t>(random, {17, 64, 65, 200, 700}), in = pick<int64_t>(random, {1, 3, 32, 64, 205, 530});
  std::vector<int64_t> shape = {m, in}, out;
  if (m % 2 == 0 && random.below(2)) shape = {2, m / 2, in};
  for (size_t i = 0; i <= seed % 4 / 3; ++i) out.push_back(pick<int64_t>(random, {1, 5, 64, 130, 205}));
  return case_of(random, shape, out, bfloat16);
}

/// Of weights that are larger than a core's cache is taken to be, so that they are read for several tiles at a time.
Case large_case(bool bfloat16, bool two) {
  Random random(0, "large case");
  const int64_t out = bfloat16 ? 1100 : 530;
  return case_of(random, {bfloat16 ? 300 : 530, 1030}, two ? std::vector{out, out - 10} : std::vector{out}, bfloat16);
}

/// Of small weights and many rows, whose gradients are those of narrow_gradients; every third has two weights.
Case narrow_case(uint64_t seed) {
  Random random(seed, "narrow case");
  const auto m = pick<int64_t>(random, {1024, 1030, 1999}), in = pick<int64_t>(random, {16, 48, 64, 128, 256});
  std::vector<int64_t> out;
  for (size_t i = 0; i <= seed % 3 / 2; ++i) out.push_back(pick<int64_t>(random, {16, 80, 128}));
  EXPECT_TRUE(narrow(m, in, out));
  return case_of(random, {m, in}, out, false);
}

struct Value {
  std::string name;
  Tensor tensor;
  int64_t inner;  // how many products each element sums
};

/// Results and gradients of x, the weights and the bias, or of the `only` one of these that asks for one.
std::vector<Value> values_of(const Case& c, Linear* f, int64_t only = -1) {
  const Poison poison;
  Tensors leaves = {c.x};
  leaves.insert(leaves.end(), c.weights.begin(), c.weights.end());
  if (c.options.bias.defined()) leaves.push_back(c.options.bias);
  const auto count = static_cast<int64_t>(leaves.size()), n = static_cast<int64_t>(c.weights.size());
  for (int64_t i = 0; i < count; ++i) leaves[i] = leaves[i].detach().requires_grad_(only < 0 || only == i);
  LinearOptions o = c.options;
  if (o.bias.defined()) o.bias = leaves.back();
  const Tensors y = f(leaves[0], {leaves.begin() + 1, leaves.begin() + 1 + n}, o);
  torch::autograd::backward(y, c.grads);
  std::vector<Value> values;
  int64_t m = c.x.numel() / c.x.size(-1), out = 0;
  for (const auto& result : y) values.push_back({"y", result.detach(), c.x.size(-1)}), out += result.size(-1);
  for (int64_t i = 0; i < count; ++i)
    if (leaves[i].requires_grad())
      values.push_back({i == 0 ? "dx" : i <= n ? "dw" : "db", leaves[i].grad(), i == 0 ? out : m});
  return values;
}

/// A sum of n products of normal values has a deviation of sqrt(n). Its n additions in float32, each rounded by up to
/// eps / 2 of a partial sum, add an error that deviates by sqrt(n) eps / 3 of that; the worst of many errors and the
/// largest of many values are equally many deviations out. Hence sqrt(n) eps of the largest (at least of a deviation),
/// and 2 eps for products and bias. In bfloat16: against factors rounded to it, by 2^-8 each; the sum "db" rounds none.
void expect_agreement(const std::vector<Value>& got, const std::vector<Value>& expected, bool bfloat16 = false) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto& [name, tensor, inner] = expected[i];
    ASSERT_EQ(got[i].tensor.sizes(), tensor.sizes()) << name;
    const double deviation = std::sqrt(std::max<double>(1, inner));
    const double eps = std::ldexp(1, got[i].tensor.scalar_type() == at::kDouble ? -52 : -23);
    const double tolerance = (2 + deviation) * eps + (bfloat16 && name == "db" ? 1. / 256 : 0);
    EXPECT_LE(error_between(got[i].tensor / deviation, tensor / deviation), tolerance) << name;
  }
}

bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::ranges::equal(a, b, [](const Value& x, const Value& y) { return x.tensor.equal(y.tensor); });
}

void expect_exact_on_every_instruction_set(bool bfloat16) {
  ASSERT_FALSE(InstructionSet::all().empty());
  for (int64_t target : InstructionSet::all())
    for (uint64_t seed = 0; seed < 32; ++seed) {
      const InstructionSet scope(target);
      const Threads threads(1 + static_cast<int>(seed % 8 / 4));
      const Case c = random_case(seed, bfloat16);
      SCOPED_TRACE(c.text + ", target " + std::to_string(target));
      Case exact = converted(bfloat16 ? converted(c, at::kBFloat16) : c, at::kDouble);
      if (c.options.bias.defined()) exact.options.bias = c.options.bias.to(at::kDouble);
      expect_agreement(values_of(c, lapse::linear), values_of(exact, plain_linear), bfloat16);
    }
}

TEST(Linear, AgreesWithFloat64) { expect_exact_on_every_instruction_set(false); }

TEST(Linear, AgreesWithFloat64WhereWeightsAreLarge) {
  for (const auto& [bfloat16, two] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    if (bfloat16 && !has_bfloat16_products()) continue;
    const Case c = large_case(bfloat16, two);
    SCOPED_TRACE(c.text);
    Case exact = converted(bfloat16 ? converted(c, at::kBFloat16) : c, at::kDouble);
    if (c.options.bias.defined()) exact.options.bias = c.options.bias.to(at::kDouble);
    const auto on = [&](int n) {
      const Threads threads(n);
      return values_of(c, lapse::linear);
    };
    const auto one = on(1);
    expect_agreement(one, values_of(exact, plain_linear), bfloat16);
    for (const int threads : {2, 5}) EXPECT_TRUE(same_bits(one, on(threads))) << threads;
  }
}

TEST(Linear, NarrowGradientsAgreeWithFloat64OnAnyNumberOfThreads) {
  for (int64_t target : InstructionSet::all())
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const InstructionSet scope(target);
      Case c = narrow_case(seed);
      SCOPED_TRACE(c.text + ", seed " + std::to_string(seed) + ", target " + std::to_string(target));
      const auto on = [&](int n) {
        const Threads threads(n);
        return values_of(c, lapse::linear);
      };
      const auto whole = on(2);
      expect_agreement(whole, values_of(converted(c, at::kDouble), plain_linear));
      EXPECT_TRUE(same_bits(on(1), whole));
      const size_t first = c.weights.size();
      for (size_t i = first; i < whole.size(); ++i)
        EXPECT_TRUE(values_of(c, lapse::linear, static_cast<int64_t>(i - first)).back().tensor.equal(whole[i].tensor));
      c.options.gradient_rows = {{1, 3}, {70, 600}};
      const auto given = on(2);
      for (const auto& [begin, end] : c.options.gradient_rows)
        EXPECT_TRUE(given[first].tensor.slice(0, begin, end).equal(whole[first].tensor.slice(0, begin, end)));
      const Tensor outside = given[first].tensor.slice(0, 640);
      EXPECT_TRUE(outside.equal(at::zeros_like(outside)));  // no tile of 64 rows there has one that is needed
    }
}

TEST(Linear, AgreesInBfloat16) {
  if (!has_bfloat16_products()) GTEST_SKIP() << "this processor does not multiply bfloat16";
  expect_exact_on_every_instruction_set(true);
}

Tensors linear_on_second_device(const Tensor& x, const Tensors& weights, const LinearOptions& o) {
  LinearOptions there = o;
  if (o.bias.defined()) there.bias = o.bias.to(second_device());
  Tensors moved;
  for (const auto& weight : weights) moved.push_back(weight.to(second_device()));
  Tensors y = lapse::linear(x.to(second_device()), moved, there);
  for (auto& result : y) result = result.to(at::kCPU);
  return y;
}

TEST(Linear, AgreesInBfloat16OnADeviceBesideTheCpu) {
  for (uint64_t seed = 0; seed < 32; ++seed) {
    const Case c = random_case(seed, true);
    SCOPED_TRACE(c.text);
    Case exact = converted(converted(c, at::kBFloat16), at::kDouble);
    if (c.options.bias.defined()) exact.options.bias = c.options.bias.to(at::kDouble);
    expect_agreement(values_of(c, linear_on_second_device), values_of(exact, plain_linear), true);
  }
}

TEST(Linear, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const Case c = random_case(seed, seed >= 12 && has_bfloat16_products());
    auto on = [&](int n) {
      const Threads threads(n);
      return values_of(c, lapse::linear);
    };
    const auto one = on(1);
    for (const int threads : {2, 5}) EXPECT_TRUE(same_bits(one, on(threads))) << c.text << ", threads " << threads;
  }
  const Tensor w = at::sin(at::arange(20000 * 96, at::kFloat)).view({20000, 96});  // long sums, as over a vocabulary
  for (const int64_t m : {1, 5, 16}) {
    const Tensor x = at::sin(at::arange(m * 96, at::kFloat) * 0.7).view({m, 96}), dy = at::sin(at::mm(x, w.t()) * 7);
    auto on = [&](int n) {
      const Threads threads(n);
      const Tensor own_x = x.clone().requires_grad_(), own_w = w.clone().requires_grad_();
      const Tensor y = lapse::linear(own_x, own_w);
      y.backward(dy);
      return std::array{y.detach(), own_x.grad(), own_w.grad()};
    };
    const auto one = on(1), two = on(2);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(two[i])) << m << " rows, tensor " << i;
  }
}

TEST(Linear, GivesNoGradientOutsideOfGradientRows) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Case c = random_case(seed);
    SCOPED_TRACE(c.text);
    const int64_t m = c.x.numel() / c.x.size(-1);
    const auto whole = values_of(c, lapse::linear);
    c.options.gradient_rows = {{1, 3}, {3, 3}, {8, m / 2 + 2}, {m - 2, m - static_cast<int64_t>(seed % 2)}};
    auto given = values_of(c, lapse::linear);
    const Tensor inside = at::zeros({m, 1}, at::kBool);
    for (const auto& [begin, end] : c.options.gradient_rows) inside.slice(0, begin, end).fill_(true);
    auto& [name, dx, inner] = given[c.weights.size()];
    const Tensor whole_dx = whole[c.weights.size()].tensor, got = dx.view({m, -1});
    EXPECT_TRUE(at::where(inside, 0, got).equal(at::zeros_like(got)));
    expect_agreement({{name, at::where(inside, got, 0), inner}},
                     {{name, at::where(inside, whole_dx.view({m, -1}), 0), inner}});
    dx = whole_dx;
    EXPECT_TRUE(same_bits(given, whole));  // the rest
  }
}

TEST(Linear, TakesStridedAndExpandedTensors) {
  auto turned = [](const Tensor& x) { return x.transpose(0, -1).contiguous().transpose(0, -1); };
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const Case c = random_case(seed);
    Case strided = c;
    strided.x = turned(c.x);
    for (auto* tensors : {&strided.weights, &strided.grads})
      for (auto& x : *tensors) x = turned(x);
    if (auto& bias = strided.options.bias; bias.defined()) bias = at::stack({bias, bias}, 1).select(1, 1);
    EXPECT_TRUE(same_bits(values_of(strided, lapse::linear), values_of(c, lapse::linear))) << c.text;
    if (c.options.relu) continue;  // its kinks lie elsewhere
    strided.x = c.x.narrow(0, 0, 1).expand_as(c.x);
    for (auto& grad : strided.grads) grad = grad.reshape(-1).narrow(0, 0, 1).expand(grad.sizes());
    Case same = strided;
    for (auto* x : {&same.x, &same.grads.front(), &same.grads.back()}) *x = x->contiguous();
    EXPECT_TRUE(same_bits(values_of(strided, lapse::linear), values_of(same, lapse::linear))) << c.text;
  }
}

TEST(Linear, ComputesTheGradientsAskedForAlone) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Case c = random_case(seed);
    const auto all = values_of(c, lapse::linear);
    for (size_t i = c.weights.size(); i < all.size(); ++i) {
      const auto one = values_of(c, lapse::linear, static_cast<int64_t>(i - c.weights.size()));
      EXPECT_TRUE(one.back().tensor.equal(all[i].tensor)) << c.text << ", " << all[i].name;
    }
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(lapse::linear(c.x, c.weights, c.options)[0].equal(all[0].tensor));
  }
}

TEST(Linear, TakesOneResultOfTwo) {
  Case c = random_case(3);
  c.grads.at(0).zero_();
  const Tensor x = c.x.detach().requires_grad_();
  lapse::linear(x, c.weights).at(1).backward(c.grads.at(1));
  EXPECT_TRUE(x.grad().equal(values_of(c, lapse::linear)[2].tensor));
}

TEST(Linear, TakesFewRowsAndFloat64) {
  for (int64_t target : InstructionSet::all())
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const InstructionSet scope(target);
      Case c = random_case(seed);
      const Case wide = converted(c, at::kDouble);
      expect_agreement(values_of(wide, lapse::linear), values_of(wide, plain_linear));
      for (int64_t m : {16, 5, 1, 0}) {
        for (auto* x : {&c.x, &c.grads.front(), &c.grads.back()}) *x = x->flatten(0, -2).slice(0, 0, m);
        const auto exact = values_of(converted(c, at::kDouble), plain_linear);
        expect_agreement(values_of(c, lapse::linear), exact);
        const at::NoGradGuard no_grad;  // a path of its own
        const Tensors y = lapse::linear(c.x, c.weights, c.options);
        for (size_t i = 0; i < y.size(); ++i) expect_agreement({{"y", y[i], 0}}, {exact[i]});
      }
    }
  EXPECT_TRUE(lapse::linear(at::ones({3}), at::ones({2, 3})).equal(at::full({2}, 3.)));
  EXPECT_TRUE(lapse::linear(at::ones({20, 0}), at::ones({2, 0})).equal(at::zeros({20, 2})));
}

TEST(Linear, ReadsBfloat16Weights) {
  for (int64_t target : InstructionSet::all())
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const InstructionSet scope(target);
      Case c = random_case(seed);
      SCOPED_TRACE(c.text + ", target " + std::to_string(target));
      const at::NoGradGuard no_grad;
      for (auto& weight : c.weights) weight = weight.to(at::kBFloat16);
      for (int64_t m : {700, 16, 5, 1, 0}) {
        c.x = c.x.flatten(0, -2).slice(0, 0, m);
        // A processor with products in bfloat16 rounds x too.
        const bool rounds = c.x.size(0) > kFewRows ? has_bfloat16_products() : reads_narrow();
        Case exact = converted(rounds ? converted(c, at::kBFloat16) : c, at::kDouble);
        if (c.options.bias.defined()) exact.options.bias = c.options.bias.to(at::kDouble);
        const auto y = lapse::linear(c.x, c.weights, c.options),
                   expected = plain_linear(exact.x, exact.weights, exact.options);
        for (size_t i = 0; i < y.size(); ++i) expect_agreement({{"y", y[i], 0}}, {{"y", expected[i], c.x.size(1)}});
      }
    }
}

TEST(Linear, DropsTheSameWithoutGradients) {
  for (const int64_t m : {1, 3, 70}) {  // few rows and many
    const Tensor x = at::randn({m, 6}), w = at::randn({5, 6}), bias = at::randn({5});
    const LinearOptions o{.bias = bias, .relu = true, .dropout = {{0.5, 3}}};
    const Tensor y = lapse::linear(x, w.clone().requires_grad_(), o).detach();
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(lapse::linear(x, w, o), y, 1e-6, 1e-6)) << m;
    EXPECT_TRUE(at::allclose(plain_linear(x, {w}, o)[0], y, 1e-6, 1e-6)) << m;
  }
  const LinearOptions o{.bias = at::ones({5}), .relu = true, .dropout = {{0.5, 3}}};
  const Tensor nothing = at::ones({70, 0}), w = at::ones({5, 0}).requires_grad_();  // y is relu of the bias, dropped
  EXPECT_TRUE(lapse::linear(nothing, w, o).equal(dropped(at::ones({70, 5}), *o.dropout)));
}

TEST(Linear, NamesWhatDoesNotFit) {
  const Tensor x = at::ones({20, 3}), w = at::ones({5, 3}), bias = at::ones({5});
  auto expect_error = [](const char* words, const Tensor& x, const Tensors& weights, const LinearOptions& o = {}) {
    const std::string message = torch_error_of([&] { lapse::linear(x, weights, o); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  for (const auto& bad : {at::ones({5, 4}), at::ones({3}), at::ones({5, 3}, at::kDouble)})
    expect_error("the weight must be Float [out, 3], got", x, {w, bad});
  for (const auto& bad : {at::ones({4}), at::ones({5, 1}), at::ones({5}, at::kDouble)})
    expect_error("the bias must be Float [5], got", x, {w}, {.bias = bad});
  expect_error("bias and relu go with one weight", x, {w, w}, {.bias = bias});
  expect_error("bias and relu go with one weight", x, {w, w}, {.relu = true});
  expect_error("dropout goes with relu", x, {w}, {.dropout = {{0.1, 1}}});
  expect_error("the weight must be Float [out, 3], got", x, {w, w.to(at::kBFloat16)});
  expect_error("bfloat16 weights have no gradients", x, {w.to(at::kBFloat16)});
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  for (const Ranges& bad : {Ranges{{0, 21}}, Ranges{{4, 6}, {5, 8}}, Ranges{{8, 9}, {1, 2}}, Ranges{{3, 2}}})
    expect_error("gradient_rows must be ascending", x, {w}, {.gradient_rows = bad});
  expect_error("needs an input of at least one dimension, and a weight", x, {});
  expect_error("needs an input of at least one dimension, and a weight", at::ones({}), {w});
}

}  // namespace
}  // namespace lapse
