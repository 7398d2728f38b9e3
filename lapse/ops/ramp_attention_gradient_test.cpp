// The backward pass of ramp_attention against numeric derivatives, for every input, through `out` and `ramp_sum`.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>

#include "lapse/ops/ramp_attention.h"
#include "lapse/ops/ramp_attention_testing.h"

namespace lapse {
namespace {

using at::Tensor;
using Leaves = std::vector<std::pair<std::string, Tensor>>;

// Spans lie at least kClear (in units of m) from the ramp's corners. Derivatives of a' = m a / sum m a grow by at most
// 1 / kClear per order, so that a central difference of step kStep (times 1 / R <= 2) is off by (2 kStep / kClear)^2 /
// 6 = 2e-7 and, for losses of some tens, by 1e-15 * 30 / kStep = 3e-9 in rounding.
constexpr double kClear = 0.02, kStep = 1e-5, kTolerance = 5e-7;

/// Compares the leaves' gradients of loss() with central differences.
void check_gradients(const Leaves& leaves, const std::function<Tensor()>& loss) {
  for (auto& [name, leaf] : leaves) leaf.requires_grad_(true).mutable_grad() = Tensor();
  loss().backward();
  at::NoGradGuard no_grad;
  for (auto& [name, leaf] : leaves) {
    ASSERT_TRUE(leaf.grad().defined()) << name;
    std::vector<double> numeric;
    double* x = leaf.data_ptr<double>();
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      const double before = x[i];
      x[i] = before + kStep;
      const double above = loss().item<double>();
      x[i] = before - kStep;
      numeric.push_back((above - loss().item<double>()) / (2 * kStep));
      x[i] = before;
    }
    EXPECT_LE(error_between(doubles(leaf.grad()), numeric), kTolerance) << name;
  }
}

Leaves leaves_of(RampCase& c) {
  Leaves leaves = {{"q", c.inputs.q}, {"k", c.inputs.k}, {"v", c.inputs.v}};
  auto& o = c.options;
  if (o.row_span) leaves.emplace_back("row_span", *o.row_span);
  if (o.head_span) leaves.emplace_back("head_span", *o.head_span);
  if (o.position) leaves.emplace_back("position", *o.position);
  if (o.logit) leaves.emplace_back("logit", *o.logit);
  return leaves;
}

RampCase small_case(uint64_t seed) { return random_ramp_case(seed, at::kDouble, true, kClear); }

/// A loss in which every output element has its own weight.
class WeightedLoss {
 public:
  explicit WeightedLoss(const RampInputs& x) {
    Random random(1, "loss");
    out_ = random_normal(x.q.sizes(), random);
    ramp_sum_ = random_normal({x.q.size(0)}, random);
  }
  Tensor operator()(const RampOutputs& y) const { return (y.out * out_).sum() + (y.ramp_sum * ramp_sum_).sum(); }

 private:
  Tensor out_, ramp_sum_;
};

TEST(RampAttentionGradient, AgreesWithNumericDerivatives) {
  const Threads one(1);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RampCase c = small_case(seed);
    SCOPED_TRACE(c.text);
    const WeightedLoss weighted(c.inputs);
    check_gradients(leaves_of(c), [&] { return weighted(ramp_attention(c.inputs, c.options)); });
    if (HasFailure()) return;
  }
}

TEST(RampAttentionGradient, AgreesWithNumericDerivativesUnderDropout) {
  const Threads one(1);
  for (uint64_t seed = 100; seed < 130; ++seed) {
    RampCase c = small_case(seed);
    SCOPED_TRACE(c.text);
    c.options.dropout = 0.4;
    c.options.seed = at::full({1}, static_cast<int64_t>(mix64(seed)), at::kLong);
    const WeightedLoss weighted(c.inputs);
    check_gradients(leaves_of(c), [&] { return weighted(ramp_attention(c.inputs, c.options)); });
    if (HasFailure()) return;
  }
}

// As random drop does it: rows cut at u L read at most that far, and their own spans get no gradient.
TEST(RampAttentionGradient, StopsAtAClampOfTheSpans) {
  const Threads one(1);
  int64_t clamped = 0, free = 0;
  for (uint64_t seed = 200; seed < 240; ++seed) {
    RampCase c = small_case(seed);
    if (!c.options.row_span) continue;
    SCOPED_TRACE(c.text);
    const Tensor span = *c.options.row_span;
    Random random(seed, "clamp");
    const double limit = clear_span(random, 6, c.options.ramp, kClear);
    auto options = c.options;
    const WeightedLoss weighted(c.inputs);
    check_gradients({{"span", span}}, [&] {
      options.row_span = span.clamp_max(limit);
      return weighted(ramp_attention(c.inputs, options));
    });
    clamped += (span > limit).sum().item<int64_t>();
    free += (span.grad() != 0).sum().item<int64_t>();
    EXPECT_EQ((span.grad() * (span > limit)).abs().sum().item<double>(), 0);
  }
  EXPECT_GT(clamped, 20);
  EXPECT_GT(free, 20);
}

/// The inputs of a case as views: transposed, every other element, one row expanded.
struct Views {
  explicit Views(RampCase& c) : c(c) {
    auto& [x, o, text] = c;
    auto leaf = [&](const char* name, const Tensor& values) {
      leaves.emplace_back(name, values.detach().clone(at::MemoryFormat::Contiguous));
      return leaves.back().second;
    };
    auto twice = [](const Tensor& values) { return at::stack({values, values}, 1).select(1, 1); };
    x.start = twice(x.start);
    x.time = twice(x.time);
    const Tensor q = leaf("q", x.q.permute({3, 2, 0, 1}));
    const Tensor k = leaf("k", x.k.permute({2, 0, 1}));
    const Tensor v = leaf("v", at::ones({1, x.v.size(1), x.v.size(2)}, at::kDouble).cumsum(2));
    views.push_back([&x = x, q, k, v] {
      x.q = q.permute({2, 3, 1, 0});
      x.k = k.permute({1, 2, 0});
      x.v = v.expand(x.k.sizes());
    });
    add_options(leaf);
  }

  template <class Leaf>
  void add_options(const Leaf& leaf) {
    auto& o = c.options;
    if (o.row_span) {
      const Tensor pairs = leaf("row_span", at::stack({*o.row_span, *o.row_span}, 1));
      views.push_back([&o, pairs] { o.row_span = pairs.select(1, 0); });
    }
    if (o.head_span) {
      const Tensor all = leaf("head_span", o.head_span->narrow(0, 0, 1));
      views.push_back([&o, all, H = c.inputs.q.size(2)] { o.head_span = all.expand({H}); });
    }
    if (o.position) {
      const Tensor turned = leaf("position", o.position->t());
      views.push_back([&o, turned] { o.position = turned.t(); });
    }
    if (o.logit) {
      const Tensor turned = leaf("logit", o.logit->t());
      views.push_back([&o, turned] { o.logit = turned.t(); });
    }
  }

  RampCase& c;
  Leaves leaves;
  std::vector<std::function<void()>> views;
};

TEST(RampAttentionGradient, ReachesTransposedStridedAndExpandedInputs) {
  const Threads one(1);
  for (uint64_t seed = 300; seed < 330; ++seed) {
    RampCase c = small_case(seed);
    SCOPED_TRACE(c.text);
    const Views views(c);
    const WeightedLoss weighted(c.inputs);
    check_gradients(views.leaves, [&] {
      for (const auto& view : views.views) view();
      return weighted(ramp_attention(c.inputs, c.options));
    });
    if (HasFailure()) return;
  }
}

TEST(RampAttentionGradient, TakesExpandedTransposedAndMissingIncomingGradients) {
  const Threads one(1);
  using Loss = std::function<Tensor(const RampOutputs&)>;
  const std::pair<const char*, Loss> losses[] = {
      {"sums", [](const RampOutputs& y) { return y.out.sum() + y.ramp_sum.sum(); }},
      {"transposed",
       [](const RampOutputs& y) {
         const Tensor turned = y.out.permute({3, 1, 2, 0}).contiguous();
         return (turned * at::arange(turned.numel(), at::kDouble).view_as(turned).cos()).sum();
       }},
      {"one query", [](const RampOutputs& y) { return y.out.select(1, -1).sum(); }},
      {"ramp_sum alone", [](const RampOutputs& y) { return y.ramp_sum.square().sum(); }},
  };
  for (uint64_t seed = 400; seed < 415; ++seed)
    for (const auto& [name, loss] : losses) {
      RampCase c = small_case(seed);
      SCOPED_TRACE(c.text + ", " + name);
      check_gradients(leaves_of(c), [&, &loss = loss] { return loss(ramp_attention(c.inputs, c.options)); });
      if (HasFailure()) return;
    }
}

// ----- the operator of the backward pass
// -------------------------------------------------------------------------------

struct Named {
  const char* name;
  Tensor value;
};

std::vector<Named> named(const RampGradients& g) {
  return {{"q", g.q},
          {"k", g.k},
          {"v", g.v},
          {"row_span", g.row_span},
          {"head_span", g.head_span},
          {"position", g.position},
          {"logit", g.logit}};
}

RampGradients backward(const RampCase& c, bool reference) {
  Random random(2, "incoming");
  const at::NoGradGuard no_grad;
  const auto type = c.inputs.q.scalar_type();
  const auto y = ramp_attention(c.inputs, c.options);
  const Tensor grad_out = random_normal(y.out.sizes(), random).to(type);
  const Tensor grad_sum = random_normal(y.ramp_sum.sizes(), random).to(y.ramp_sum.scalar_type());
  return (reference ? ramp_attention_backward_reference : ramp_attention_backward)(grad_out, grad_sum, c.inputs,
                                                                                   c.options, y);
}

TEST(RampAttentionBackward, IsWhatAutogradCalls) {
  const Threads one(1);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RampCase c = random_ramp_case(seed, at::kDouble, false, 1e-3);
    SCOPED_TRACE(c.text);
    const auto direct = backward(c, false);
    const auto leaves = leaves_of(c);
    for (auto& [name, leaf] : leaves) leaf.requires_grad_(true);
    Random random(2, "incoming");
    const auto y = ramp_attention(c.inputs, c.options);
    const Tensor grad_out = random_normal(y.out.sizes(), random);
    ((y.out * grad_out).sum() + (y.ramp_sum * random_normal(y.ramp_sum.sizes(), random)).sum()).backward();
    EXPECT_FALSE(y.stats.requires_grad() || y.received.requires_grad());
    for (const auto& [name, value] : named(direct)) {
      const auto given =
          std::find_if(leaves.begin(), leaves.end(), [&](const auto& leaf) { return leaf.first == name; });
      if (given == leaves.end())
        EXPECT_EQ(value.numel(), 0) << name;
      else
        EXPECT_TRUE(value.equal(given->second.grad())) << name;
    }
  }
}

TEST(RampAttentionBackward, SpareRowsGetExactZeros) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const RampCase c = random_ramp_case(seed, at::kFloat, false, 1e-3);
    const int64_t used = c.inputs.offsets[-1].item<int64_t>(), spare = c.inputs.k.size(0) - used;
    for (const auto& [name, value] : named(backward(c, false))) {
      EXPECT_TRUE(value.isfinite().all().item<bool>()) << name << ", " << c.text;
      if (value.numel() > 0 && value.size(0) == used + spare && name != std::string("q"))
        EXPECT_EQ(value.narrow(0, used, spare).abs().sum().item<double>(), 0) << name << ", " << c.text;
    }
  }
}

/// The same numbers, rounded, in float64.
RampCase widened(RampCase c) {
  for (Tensor* t : {&c.inputs.q, &c.inputs.k, &c.inputs.v}) *t = t->to(at::kDouble);
  for (auto* t : {&c.options.row_span, &c.options.head_span, &c.options.position, &c.options.logit})
    if (*t) *t = (*t)->to(at::kDouble);
  return c;
}

class RampAttentionPrecision : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {};

TEST_P(RampAttentionPrecision, GradientsAgreeWithFloat64) {
  const Threads one(1);
  const auto [type, reference] = GetParam();
  // float32: hundreds of terms of 6e-8, divided by Z >= 0.02. bfloat16: one rounding of `out`, which the backward pass
  // reads, and one of the result, 2^-9 each; the first adds up over up to 67 queries.
  const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-5 : 1. / 64;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const RampCase c = random_ramp_case(seed, type, false, kClear);
    const auto got = named(backward(c, reference)), expected = named(backward(widened(c), true));
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(error_between(got[i].value, expected[i].value), tolerance) << got[i].name << ", " << c.text;
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RampAttentionPrecision,
                         testing::Combine(testing::Values(at::kDouble, at::kFloat, at::kBFloat16), testing::Bool()),
                         [](const auto& info) {
                           return std::string(at::toString(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_reference" : "_operator");
                         });

}  // namespace
}  // namespace lapse
