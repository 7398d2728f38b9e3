// The forward pass of ramp_attention against its formulas, and what its contract promises of dropout and determinism.
#include "lapse/ops/attention/ramp/ramp_attention.h"

#include <gtest/gtest.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr uint64_t kCases = 240;

struct Implementation {
  const char* name;
  RampOutputs (*forward)(const AttentionInputs&, const RampOptions&);
};
const Implementation kImplementations[] = {{"operator", ramp_attention}, {"reference", ramp_attention_reference}};

class RampAttention : public testing::TestWithParam<std::tuple<Implementation, at::ScalarType>> {};

TEST_P(RampAttention, AgreesWithLoopsOverDoubles) {
  const Threads one(1);
  const auto& [implementation, type] = GetParam();
  // float64: 1e-16 times the number of terms and the size of exponents. float32 the same with 6e-8; the oracle reads
  // the same rounded inputs. bfloat16 rounds the output and
  // the operator the weights too, to 2^-8 at worst and half of that in the mean: 2^-9 of |out| and of sum w |v|.
  const double wide = type == at::kDouble ? 1e-12 : 2e-6;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RampCase c = random_ramp_case(seed, type, false, 1e-3);
    SCOPED_TRACE(c.text);
    c.options.received = seed % 2 == 0;
    const auto y = implementation.forward(c.inputs, c.options);
    const auto expected = RampOracle(c.inputs, c.options).y;
    EXPECT_EQ(y.out.scalar_type(), type);
    double most = 0;  // |v|; spare rows are NaN
    for (double v : doubles(c.inputs.v)) most = std::max(most, std::isnan(v) ? 0 : std::abs(v));
    const double narrow = type == at::kBFloat16 ? (1 + most) / 512 : wide;
    EXPECT_LE(error_between(doubles(y.out), expected.out), narrow);
    EXPECT_LE(error_between(doubles(y.ramp_sum), expected.ramp_sum), wide);
    EXPECT_LE(error_between(doubles(y.stats), expected.stats), wide);
    if (c.options.received)
      EXPECT_LE(error_between(doubles(y.received), expected.received), wide);
    else
      EXPECT_EQ(y.received.numel(), 0);
    if (HasFailure()) return;
  }
}

std::string case_name(const testing::TestParamInfo<RampAttention::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + at::toString(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, RampAttention,
                         testing::Combine(testing::ValuesIn(kImplementations),
                                          testing::Values(at::kDouble, at::kFloat, at::kBFloat16)),
                         case_name);

// Else the test above could pass by drawing nothing of interest.
TEST(RampAttentionCases, CoverTheCorners) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const auto [x, o, text] = random_ramp_case(seed, at::kDouble, false, 1e-3);
    const auto y = RampOracle(x, o).y;
    const auto offsets = integers(x.offsets);
    for (int64_t d : {0, 1, 2, 3}) seen["size " + std::to_string(d) + " is 1"] += x.q.size(d) == 1;
    for (int64_t D : {3, 7, 64}) seen["D " + std::to_string(D)] += x.q.size(3) == D;
    for (size_t b = 1; b < offsets.size(); ++b) seen["sample without rows"] += offsets[b] == offsets[b - 1];
    seen["no rows at all"] += offsets.back() == 0;
    seen["spare rows"] += offsets.back() < x.k.size(0);
    seen["row spans"] += o.row_span.has_value();
    seen["head spans"] += o.head_span.has_value();
    seen["no spans"] += !o.row_span && !o.head_span;
    seen["memory on the ramp"] += std::any_of(y.ramp_sum.begin(), y.ramp_sum.end(), [](double r) { return r < 0; });
    seen["position for some ages"] += o.position && o.position->size(0) < 4;
    seen["position for all ages"] += o.position && o.position->size(0) == 300;
    seen["logit"] += o.logit.has_value();
    seen["min_age 0"] += o.min_age == 0;
    seen["min_age 1"] += o.min_age == 1;
    seen["shared keys"] += x.k.size(1) < x.q.size(2);
    seen["scale"] += o.scale.has_value();
    seen["age bias"] += o.age_bias.has_value();
    seen["age bias beyond its table"] += o.age_bias && o.age_bias->size(1) < 3;
    seen["later rows"] += o.min_age < 0;
    seen["until"] += x.until.has_value();
    seen["until with row spans"] += x.until && o.row_span;
    seen["window"] += o.max_age < 20;
    seen["query that sees nothing"] += std::any_of(y.stats.begin(), y.stats.end(), [](double s) { return s < -1e300; });
  }
  EXPECT_EQ(seen.size(), 28u);
  for (const auto& [what, count] : seen) EXPECT_GE(count, 5) << what;
}

TEST(RampAttentionForward, LargeLogitsAreSafe) {
  RampCase c = random_ramp_case(8, at::kFloat, false, 1e-3);
  for (double factor : {1e3, 1e6, 1e12}) {
    AttentionInputs x = c.inputs;
    x.q = x.q * factor;
    const auto y = ramp_attention(x, c.options);
    EXPECT_TRUE(y.out.isfinite().all().item<bool>());
    // A weighted mean of v, whatever the logits.
    EXPECT_LE(y.out.abs().max().item<double>(), x.v.nan_to_num(0).abs().max().item<double>() * (1 + 1e-5));
    const auto g = ramp_attention_backward(at::ones_like(y.out), at::ones_like(y.ramp_sum), x, c.options, y);
    EXPECT_TRUE(g.q.isfinite().all().item<bool>() && g.k.isfinite().all().item<bool>());
  }
}

TEST(RampAttentionForward, ShapesAreInferredWithoutData) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto [x, o, text] = random_ramp_case(seed, at::kBFloat16, false, 1e-3);
    o.received = seed % 2;
    const auto y = ramp_attention(x, o);
    const auto g = ramp_attention_backward(y.out, y.ramp_sum, x, o, y);
    for (Tensor* t : {&x.q, &x.k, &x.v, &x.offsets, &x.start, &x.time}) *t = t->to(at::kMeta);
    for (auto* t : {&x.until, &o.row_span, &o.head_span, &o.position, &o.logit, &o.age_bias})
      if (*t) *t = (*t)->to(at::kMeta);
    const auto z = ramp_attention(x, o);
    const auto f = ramp_attention_backward(z.out, z.ramp_sum, x, o, z);
    const std::pair<Tensor, Tensor> pairs[] = {
        {y.out, z.out}, {y.ramp_sum, z.ramp_sum}, {y.received, z.received}, {y.stats, z.stats}, {g.k, f.k},
        {g.v, f.v},     {g.position, f.position}, {g.age_bias, f.age_bias}};
    for (const auto& [real, meta] : pairs) {
      EXPECT_EQ(real.sizes(), meta.sizes()) << text;
      EXPECT_EQ(real.scalar_type(), meta.scalar_type()) << text;
    }
  }
}

// ----- dropout
// ---------------------------------------------------------------------------------------------------------

/// Values that make each weight readable: v of row i is the i-th unit vector, so that out[b, t, h, i] = a'_ti, dropped
/// or not.
RampCase readable_case(double dropout, int64_t seed) {
  Random random(3, "readable");
  const int64_t B = 2, K = 40, H = 3, n = 50, N = B * n;
  RampCase c;
  auto& [x, o, text] = c;
  x.q = random_normal({B, K, H, n}, random);
  x.k = random_normal({N, H, n}, random) / 8;
  x.v = at::eye(n, at::kDouble).repeat({B, 1}).unsqueeze(1).expand({N, H, n});
  x.offsets = at::tensor({int64_t{0}, n, N});
  x.start = at::full({B}, n, at::kLong);
  x.time = at::arange(n, at::kLong).repeat({B});
  o.row_span = clear_spans(N, random, 120, 7, 1e-3);
  o.ramp = 7;
  o.dropout = dropout;
  if (dropout > 0) o.seed = at::full({1}, seed, at::kLong);
  return c;
}

Tensor weights(double dropout, int64_t seed) {
  const auto c = readable_case(dropout, seed);
  return ramp_attention(c.inputs, c.options).out;
}

TEST(RampAttentionDropout, ZeroesOrScalesEachNormalisedWeight) {
  const Tensor whole = weights(0, 0), left = weights(0.3, 5);
  const Tensor kept = left != 0;
  EXPECT_LE((left - at::where(kept, whole / 0.7, 0)).abs().max().item<double>(), 1e-15);
}

TEST(RampAttentionDropout, KeepsItsShareAndTheExpectation) {
  const Tensor whole = weights(0, 0), visible = whole > 0;
  const auto count = visible.sum().item<double>();
  ASSERT_GT(count, 5000);
  for (double p : {0.1, 0.5, 0.9}) {
    const Tensor left = weights(p, 11);
    const double share = (left.masked_select(visible) != 0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(share, 1 - p, 4 * std::sqrt(p * (1 - p) / count)) << p;
    // 240 queries, each a sum of weights that add up to 1: its deviation is below sqrt(p / (1-p)) x the weights' norm.
    const double sum = left.sum().item<double>(), deviation = std::sqrt(p / (1 - p)) * whole.norm().item<double>();
    EXPECT_NEAR(sum, whole.sum().item<double>(), 4 * deviation) << p;
  }
}

TEST(RampAttentionDropout, FollowsTheSeed) {
  EXPECT_TRUE(weights(0.5, 1).equal(weights(0.5, 1)));
  const Tensor visible = weights(0, 0) > 0;
  const Tensor one = (weights(0.5, 1) != 0).masked_select(visible), two = (weights(0.5, 2) != 0).masked_select(visible);
  // Independent halves agree half the time; so must samples, heads and queries of one seed.
  EXPECT_NEAR((one == two).to(at::kDouble).mean().item<double>(), 0.5, 0.03);
  const Tensor kept = weights(0.5, 1) != 0;
  auto agreement = [&](const Tensor& a, const Tensor& b, const Tensor& both) {
    return (a == b).masked_select(both).to(at::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(agreement(kept[0], kept[1], visible[0] & visible[1]), 0.5, 0.05);
  EXPECT_NEAR(agreement(kept.select(2, 0), kept.select(2, 1), visible.select(2, 0)), 0.5, 0.05);
  const Tensor next = visible.narrow(1, 1, 39) & visible.narrow(1, 0, 39);
  EXPECT_NEAR(agreement(kept.narrow(1, 0, 39), kept.narrow(1, 1, 39), next), 0.5, 0.05);
}

TEST(RampAttentionDropout, LeavesReceivedAndRampSum) {
  auto c = readable_case(0.5, 1);
  c.options.received = true;
  const auto dropped = ramp_attention(c.inputs, c.options);
  c.options.dropout = 0;
  const auto whole = ramp_attention(c.inputs, c.options);
  EXPECT_TRUE(dropped.received.equal(whole.received));
  EXPECT_TRUE(dropped.ramp_sum.equal(whole.ramp_sum));
  EXPECT_TRUE(dropped.stats.equal(whole.stats));
}

// ----- determinism
// -----------------------------------------------------------------------------------------------------

struct Everything {
  RampOutputs y;
  RampGradients g;
};

Everything run(const RampCase& c, int threads) {
  const Threads scope(threads);
  Everything e;
  e.y = ramp_attention(c.inputs, c.options);
  e.g = ramp_attention_backward(at::ones_like(e.y.out), at::ones_like(e.y.ramp_sum), c.inputs, c.options, e.y);
  return e;
}

void expect_same(const Everything& a, const Everything& b) {
  EXPECT_TRUE(a.y.out.equal(b.y.out));
  EXPECT_TRUE(a.y.ramp_sum.equal(b.y.ramp_sum));
  EXPECT_TRUE(a.y.received.equal(b.y.received));
  EXPECT_TRUE(a.g.q.equal(b.g.q));
  EXPECT_TRUE(a.g.k.equal(b.g.k));
  EXPECT_TRUE(a.g.v.equal(b.g.v));
  EXPECT_TRUE(a.g.row_span.equal(b.g.row_span));
  EXPECT_TRUE(a.g.head_span.equal(b.g.head_span));
  EXPECT_TRUE(a.g.position.equal(b.g.position));
  EXPECT_TRUE(a.g.logit.equal(b.g.logit));
  EXPECT_TRUE(a.g.age_bias.equal(b.g.age_bias));
}

// Large enough that one sample's tensors are themselves spread over threads.
RampCase large_case(int64_t B, bool row_spans) {
  const auto type = at::kFloat;
  Random random(4, "large");
  const int64_t K = 48, H = 4, D = 16, n = 401, N = B * n;
  RampCase c;
  c.inputs = {random_normal({B, K, H, D}, random).to(type),
              random_normal({N, H, D}, random).to(type),
              random_normal({N, H, D}, random).to(type),
              at::arange(B + 1, at::kLong) * n,
              at::full({B}, n, at::kLong),
              at::arange(n, at::kLong).repeat({B})};
  auto& o = c.options;
  o.ramp = 64;
  if (row_spans)
    o.row_span = clear_spans(N, random, 500, 64, 1e-3).to(type);
  else
    o.head_span = clear_spans(H, random, 400, 64, 1e-3).to(type);
  o.position = random_normal({K, D}, random).to(type);
  o.logit = random_normal({N, H}, random).to(type);
  o.dropout = 0.1;
  o.seed = at::full({1}, 9, at::kLong);
  o.received = true;
  return c;
}

TEST(RampAttentionDeterminism, RepeatsToTheBitOnAnyNumberOfThreads) {
  for (int64_t B : {1, 5})
    for (bool row_spans : {false, true}) {
      SCOPED_TRACE("B " + std::to_string(B) + (row_spans ? ", row spans" : ", head spans"));
      const auto c = large_case(B, row_spans);
      const auto one = run(c, 1);
      expect_same(one, run(c, 1));
      expect_same(one, run(c, 2));
    }
}

}  // namespace
}  // namespace lapse
