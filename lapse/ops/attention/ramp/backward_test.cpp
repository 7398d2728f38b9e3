// The backward pass of ramp_attention as an operator of its own, and its precision.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"

namespace lapse {
namespace {

using at::Tensor;

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
          {"logit", g.logit},
          {"age_bias", g.age_bias}};
}

bool has_spans(const RampCase& c) { return c.options.row_span || c.options.head_span; }

/// `given`: the case that the backward pass's inputs come from, `out` and its gradient; their type may be a narrower
/// one.
RampGradients backward(const RampCase& c, bool reference, const RampCase& given) {
  Random random(2, "incoming");
  const at::NoGradGuard no_grad;
  const auto type = c.inputs.q.scalar_type();
  auto y = ramp_attention(c.inputs, c.options);
  y.out = ramp_attention(given.inputs, given.options).out.to(type);
  const Tensor grad_out = random_normal(y.out.sizes(), random).to(given.inputs.q.scalar_type()).to(type);
  const Tensor grad_sum = random_normal(y.ramp_sum.sizes(), random).to(y.ramp_sum.scalar_type());
  const Tensor grad_lse = random_normal(y.stats.sizes(), random).select(3, 0).to(y.stats.scalar_type());
  return (reference ? ramp_attention_backward_reference : ramp_attention_backward)(
      grad_out, grad_sum, c.inputs, c.options, y, has_spans(c) ? Tensor() : grad_lse);
}
RampGradients backward(const RampCase& c, bool reference) { return backward(c, reference, c); }

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
    Tensor loss = (y.out * grad_out).sum() + (y.ramp_sum * random_normal(y.ramp_sum.sizes(), random)).sum();
    const Tensor grad_stats = random_normal(y.stats.sizes(), random);
    if (!has_spans(c)) loss = loss + (y.stats * grad_stats).nan_to_num(0, 0, 0).sum();  // -inf where nothing is visible
    loss.backward();
    EXPECT_FALSE(y.received.requires_grad());
    EXPECT_EQ(y.stats.requires_grad(), !has_spans(c));
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
      const bool per_row = value.numel() > 0 && value.size(0) == used + spare && name != std::string("q");
      if (!per_row) continue;
      EXPECT_EQ(value.narrow(0, used, spare).abs().sum().item<double>(), 0) << name << ", " << c.text;
    }
  }
}

/// The same numbers, rounded, in float64.
RampCase widened(RampCase c) {
  for (Tensor* t : {&c.inputs.q, &c.inputs.k, &c.inputs.v}) *t = t->to(at::kDouble);
  for (auto* t :
       {&c.options.row_span, &c.options.head_span, &c.options.position, &c.options.logit, &c.options.age_bias})
    if (*t) *t = (*t)->to(at::kDouble);
  return c;
}

class RampAttentionPrecision : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {};

TEST_P(RampAttentionPrecision, GradientsAgreeWithFloat64) {
  const Threads one(1);
  const auto [type, reference] = GetParam();
  // float32: hundreds of terms of 6e-8, divided by Z >= 0.02; an age's bias adds up what all B K queries give, whose
  // errors are independent. bfloat16: both read the same rounded `out`, and the result is rounded.
  const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-5 : 1. / 32;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const RampCase c = random_ramp_case(seed, type, false, 0.02);
    const auto got = named(backward(c, reference)), expected = named(backward(widened(c), true, c));
    const double queries = static_cast<double>(c.inputs.q.size(0) * c.inputs.q.size(1));
    for (size_t i = 0; i < got.size(); ++i) {
      const bool summed = type == at::kFloat && got[i].name == std::string("age_bias");
      EXPECT_LE(error_between(got[i].value, expected[i].value), tolerance * (summed ? std::sqrt(queries) : 1))
          << got[i].name << ", " << c.text;
    }
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
