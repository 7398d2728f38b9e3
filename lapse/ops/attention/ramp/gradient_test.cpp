// The backward pass of ramp_attention against numeric derivatives, for every input, through `out` and `ramp_sum`.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"

namespace lapse {
namespace {

using at::Tensor;

// Spans lie at least kClear (in units of m) from the ramp's corners. Derivatives of a' = m a / sum m a grow by at most
// 1 / kClear per order, so that a central difference of step kStep (times 1 / R <= 2) is off by (2 kStep / kClear)^2 /
// 6 = 2e-7 and, for losses of some tens, by 1e-15 * 30 / kStep = 3e-9 in rounding.
constexpr double kClear = 0.02, kStep = 1e-5, kTolerance = 5e-7;

/// Compares the leaves' gradients of loss() with central differences of value().
void check_gradients(const Leaves& leaves, const std::function<Tensor()>& loss, const std::function<double()>& value) {
  for (auto& [name, leaf] : leaves) leaf.requires_grad_(true).mutable_grad() = Tensor();
  loss().backward();
  at::NoGradGuard no_grad;
  for (auto& [name, leaf] : leaves) {
    ASSERT_TRUE(leaf.grad().defined()) << name;
    const Tensor numeric = at::zeros_like(leaf);  // with its strides
    double* x = leaf.data_ptr<double>();
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      const double before = x[i];
      x[i] = before + kStep;
      const double above = value();
      x[i] = before - kStep;
      numeric.data_ptr<double>()[i] = (above - value()) / (2 * kStep);
      x[i] = before;
    }
    EXPECT_LE(error_between(leaf.grad(), numeric), kTolerance) << name;
  }
}

/// The same, by central differences of the operator itself.
void check_gradients(const Leaves& leaves, const std::function<Tensor()>& loss) {
  check_gradients(leaves, loss, [&] { return loss().item<double>(); });
}

RampCase small_case(uint64_t seed) { return random_ramp_case(seed, at::kDouble, true, kClear); }

/// A loss in which every output element has its own weight.
class WeightedLoss {
 public:
  WeightedLoss(const AttentionInputs& x, const RampOptions& o) {
    Random random(1, "loss");
    out_ = random_normal(x.q.sizes(), random);
    ramp_sum_ = random_normal({x.q.size(0)}, random);
    auto shape = x.q.sizes().vec();
    shape[3] = 2;
    stats_ = random_normal(shape, random);
    if (o.row_span || o.head_span) stats_.zero_();  // the log-sum-exp has a gradient only without spans
  }
  Tensor operator()(const RampOutputs& y) const {
    // -inf where nothing is visible.
    const Tensor stats = y.stats.masked_fill(y.stats == -INFINITY, 0);
    return (y.out * out_).sum() + (y.ramp_sum * ramp_sum_).sum() + (stats * stats_).sum();
  }
  double operator()(const RampExpected& y) const {
    const double *out = out_.const_data_ptr<double>(), *ramp_sum = ramp_sum_.const_data_ptr<double>();
    double sum = std::inner_product(y.out.begin(), y.out.end(), out, 0.) +
                 std::inner_product(y.ramp_sum.begin(), y.ramp_sum.end(), ramp_sum, 0.);
    for (size_t i = 0; i < y.stats.size(); ++i)
      if (std::isfinite(y.stats[i])) sum += y.stats[i] * stats_.const_data_ptr<double>()[i];
    return sum;
  }

 private:
  Tensor out_, ramp_sum_, stats_;
};

TEST(RampAttentionGradient, AgreesWithNumericDerivatives) {
  const Threads one(1);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RampCase c = small_case(seed);
    SCOPED_TRACE(c.text);
    const WeightedLoss weighted(c.inputs, c.options);
    check_gradients(
        leaves_of(c), [&] { return weighted(ramp_attention(c.inputs, c.options)); },
        [&] { return weighted(RampOracle(c.inputs, c.options).y); });
    if (HasFailure()) return;
  }
}

TEST(RampAttentionGradient, AgreesWithNumericDerivativesUnderDropout) {
  const Threads one(1);
  for (uint64_t seed = 100; seed < 112; ++seed) {
    RampCase c = small_case(seed);
    SCOPED_TRACE(c.text);
    c.options.dropout = 0.4;
    c.options.seed = at::full({1}, static_cast<int64_t>(mix64(seed)), at::kLong);
    const WeightedLoss weighted(c.inputs, c.options);
    check_gradients(leaves_of(c), [&] { return weighted(ramp_attention(c.inputs, c.options)); });
    if (HasFailure()) return;
  }
}

// As random drop does it: rows cut at u L read at most that far, and their own spans get no gradient.
TEST(RampAttentionGradient, StopsAtAClampOfTheSpans) {
  const Threads one(1);
  int64_t clamped = 0, free = 0;
  for (uint64_t seed = 200; seed < 280; ++seed) {
    RampCase c = small_case(seed);
    if (!c.options.row_span) continue;
    SCOPED_TRACE(c.text);
    const Tensor span = *c.options.row_span;
    Random random(seed, "clamp");
    const double limit = clear_span(random, 6, c.options.ramp, kClear);
    auto options = c.options;
    const WeightedLoss weighted(c.inputs, c.options);
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
    if (o.age_bias) {
      const Tensor column = leaf("age_bias", o.age_bias->narrow(1, 0, 1));
      views.push_back([&o, column] { o.age_bias = column.expand({-1, 3}); });
    }
  }

  RampCase& c;
  Leaves leaves;
  std::vector<std::function<void()>> views;
};

TEST(RampAttentionGradient, ReachesTransposedStridedAndExpandedInputs) {
  const Threads one(1);
  for (uint64_t seed = 300; seed < 312; ++seed) {
    RampCase c = small_case(seed);
    SCOPED_TRACE(c.text);
    const Views views(c);
    const WeightedLoss weighted(c.inputs, c.options);
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
  for (uint64_t seed = 400; seed < 405; ++seed)
    for (const auto& [name, loss] : losses) {
      RampCase c = small_case(seed);
      SCOPED_TRACE(c.text + ", " + name);
      check_gradients(leaves_of(c), [&, &loss = loss] { return loss(ramp_attention(c.inputs, c.options)); });
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace lapse
