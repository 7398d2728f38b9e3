// Ill-shaped inputs of ramp_attention, and queries that see nothing.
#include <gtest/gtest.h>

#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"

namespace lapse {
namespace {

using at::Tensor;

/// Two samples of three rows at times 0, 1, 2 and two queries at times 3 and 4.
RampCase plain_case(at::ScalarType type) {
  Random random(5, "plain");
  RampCase c;
  c.inputs = {random_normal({2, 2, 3, 4}, random).to(type),
              random_normal({6, 3, 4}, random).to(type),
              random_normal({6, 3, 4}, random).to(type),
              at::tensor({0, 3, 6}, at::kLong),
              at::tensor({3, 3}, at::kLong),
              at::tensor({0, 1, 2, 0, 1, 2}, at::kLong)};
  c.options.ramp = 2;
  return c;
}

/// Rows at the ends of the range of times, and ages without a limit or with absurd ones: tiles must see what one query
/// of the reference sees.
TEST(RampAttentionFar, TilesSeeWhatTheReferenceSees) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  constexpr int64_t end = int64_t{1} << 61;
  struct Far {
    int64_t start, first_row, min_age, max_age;
  };
  for (const auto& far : {Far{-end, end - 2, least, most},
                          {0, 0, least, least},
                          {0, 1, most, most},
                          {end - 20, -end, 1, most},
                          {end - 20, -end, 2 * end - 10, most},
                          {0, -3, 1, most}}) {
    Random random(5, "far");
    RampCase c;
    c.inputs = {random_normal({1, 20, 1, 4}, random).to(at::kFloat),
                random_normal({3, 1, 4}, random).to(at::kFloat),
                random_normal({3, 1, 4}, random).to(at::kFloat),
                at::tensor({0, 3}, at::kLong),
                at::full({1}, far.start, at::kLong),
                at::arange(3, at::kLong) + far.first_row};
    c.options.min_age = far.min_age, c.options.max_age = far.max_age;
    const Tensor expected = ramp_attention_reference(c.inputs, c.options).out;
    EXPECT_LE((ramp_attention(c.inputs, c.options).out - expected).abs().max().item<double>(), 1e-6)
        << far.start << " " << far.first_row << " " << far.min_age << " " << far.max_age;
  }
}

// ----- nothing to see
// --------------------------------------------------------------------------------------------------

const std::pair<const char*, void (*)(RampCase&)> kBlinds[] = {
    {"rows that are not yet there", [](RampCase& c) { c.inputs.time += 50; }},
    {"rows of this very time", [](RampCase& c) { c.inputs.time.fill_(3), c.inputs.start.fill_(2); }},
    {"rows beyond max_age", [](RampCase& c) { c.inputs.start += 50, c.options.max_age = 9; }},
    {"rows that have expired", [](RampCase& c) { c.options.row_span = at::full({6}, -1.5, c.inputs.q.options()); }},
    {"rows that ended", [](RampCase& c) { c.inputs.until = at::full({6}, 3, at::kLong); }},
    {"heads that see no further", [](RampCase& c) { c.options.head_span = at::full({3}, -1.5, c.inputs.q.options()); }},
    {"no rows",
     [](RampCase& c) {
       auto& x = c.inputs;
       x.offsets.fill_(0);
       x.k = x.k.narrow(0, 0, 0), x.v = x.v.narrow(0, 0, 0), x.time = x.time.narrow(0, 0, 0);
     }},
    {"spare rows only", [](RampCase& c) { c.inputs.offsets.fill_(0), c.inputs.k.fill_(NAN), c.inputs.v.fill_(NAN); }},
};

std::vector<Tensor> floats_of(const RampCase& c) {
  std::vector<Tensor> all = {c.inputs.q, c.inputs.k, c.inputs.v};
  for (auto* t : {&c.options.row_span, &c.options.head_span, &c.options.position, &c.options.logit})
    if (*t) all.push_back(**t);
  return all;
}

TEST(RampAttentionBlind, QueriesThatSeeNothingGiveExactZeros) {
  for (auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const auto& [name, blind] : kBlinds) {
      SCOPED_TRACE(name);
      RampCase c = plain_case(type);
      blind(c);
      const int64_t N = c.inputs.k.size(0);
      c.options.position = at::ones({5, 4}, c.inputs.q.options());
      c.options.logit = at::ones({N, 3}, c.inputs.q.options());
      c.options.received = true;
      for (auto& leaf : floats_of(c)) leaf.requires_grad_(true);
      const auto y = ramp_attention(c.inputs, c.options);
      for (const Tensor& x : {y.out, y.ramp_sum, y.received}) EXPECT_TRUE(x.equal(at::zeros_like(x)));
      (y.out.sum() * 1e6 + y.ramp_sum.sum()).backward();
      for (auto& leaf : floats_of(c)) EXPECT_TRUE(leaf.grad().equal(at::zeros_like(leaf)));
    }
}

TEST(RampAttentionBlind, OneBlindQueryLeavesTheOthersAlone) {
  RampCase c = plain_case(at::kDouble);
  c.inputs.time += 3;  // the query at time 3 sees nothing, that at time 4 one row
  c.options.row_span = at::full({6}, 4.5, at::kDouble);
  for (auto& leaf : floats_of(c)) leaf.requires_grad_(true);
  const auto y = ramp_attention(c.inputs, c.options);
  EXPECT_TRUE(y.out.select(1, 0).equal(at::zeros({2, 3, 4}, at::kDouble)));
  const Tensor first = c.inputs.v.index_select(0, at::tensor({0, 3}, at::kLong));
  EXPECT_LE(error_between(y.out.select(1, 1), first), 2e-8);  // a' = a / (1 + 1e-8)
  y.out.sum().backward();
  for (auto& leaf : floats_of(c)) EXPECT_TRUE(leaf.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(c.inputs.q.grad().select(1, 0).equal(at::zeros({2, 3, 4}, at::kDouble)));
}

// Nearly all of the softmax lies on a row beyond the head's span, so that the 1e-8 beside Z counts, forward and back:
// with z = exp(-18), out = z / (z + 1e-8) v and its derivative by the row's logit is z 1e-8 / (z + 1e-8)^2 v.
TEST(RampAttentionBlind, TheEpsilonBesideZCounts) {
  AttentionInputs x = {at::zeros({1, 1, 1, 1}, at::kDouble), at::zeros({2, 1, 1}, at::kDouble),
                       at::full({2, 1, 1}, 3., at::kDouble), at::full({2}, 0, at::kLong),
                       at::full({1}, 20, at::kLong),         at::full({2}, 19, at::kLong)};
  x.offsets[1] = 2;
  x.time[0] = 0;
  RampOptions o;
  o.head_span = at::full({1}, 5., at::kDouble);
  o.logit = at::zeros({2, 1}, at::kDouble);
  o.logit->select(0, 0).fill_(18.);
  o.logit->requires_grad_(true);
  const auto y = ramp_attention(x, o);
  const double z = 1 / (1 + std::exp(18.)), whole = z + 1e-8;
  EXPECT_NEAR(y.out.item<double>(), 3 * z / whole, 1e-12);
  y.out.sum().backward();
  // d z / d logit of the near row is z (1 - z), of the far row the opposite.
  const double slope = 3 * 1e-8 / (whole * whole) * z * (1 - z);
  EXPECT_NEAR(o.logit->grad()[1].item<double>(), slope, 1e-12);
  EXPECT_NEAR(o.logit->grad()[0].item<double>(), -slope, 1e-12);
  EXPECT_GT(slope, 0.5);
}

// ----- ill-shaped inputs
// -----------------------------------------------------------------------------------------------

struct Fault {
  const char* word;  ///< that the message must contain
  void (*apply)(RampCase&);
};

const Fault kFaults[] = {
    {"q must", [](RampCase& c) { c.inputs.q = c.inputs.q[0]; }},
    {"k must", [](RampCase& c) { c.inputs.k = c.inputs.k[0]; }},
    {"k must",
     [](RampCase& c) {
       c.inputs.k = at::zeros({6, 2, 4});
     }},
    {"k must",
     [](RampCase& c) {
       c.inputs.k = at::zeros({6, 0, 4});
     }},
    {"k must",
     [](RampCase& c) {
       c.inputs.k = at::zeros({6, 3, 5});
     }},
    {"v must",
     [](RampCase& c) {
       c.inputs.v = at::zeros({5, 3, 4});
     }},
    {"q, k, v", [](RampCase& c) { c.inputs.v = c.inputs.v.to(at::kDouble); }},
    {"q, k, v", [](RampCase& c) { c.inputs.k = c.inputs.k.to(at::kBFloat16); }},
    {"q, k, v",
     [](RampCase& c) {
       for (Tensor* t : {&c.inputs.q, &c.inputs.k, &c.inputs.v}) *t = t->to(at::kInt);
     }},
    {"offsets",
     [](RampCase& c) {
       c.inputs.offsets = at::tensor({0, 6}, at::kLong);
     }},
    {"offsets", [](RampCase& c) { c.inputs.offsets = c.inputs.offsets.to(at::kInt); }},
    {"offsets",
     [](RampCase& c) {
       c.inputs.offsets = at::tensor({0, 3, 7}, at::kLong);
     }},
    {"offsets",
     [](RampCase& c) {
       c.inputs.offsets = at::tensor({-1, 3, 6}, at::kLong);
     }},
    {"offsets",
     [](RampCase& c) {
       c.inputs.offsets = at::tensor({0, 5, 4}, at::kLong);
     }},
    {"start", [](RampCase& c) { c.inputs.start = at::zeros({3}, at::kLong); }},
    {"start", [](RampCase& c) { c.inputs.start = c.inputs.start.to(at::kFloat); }},
    {"time", [](RampCase& c) { c.inputs.time = at::zeros({5}, at::kLong); }},
    {"time", [](RampCase& c) { c.inputs.time = c.inputs.time.unsqueeze(1); }},
    {"until", [](RampCase& c) { c.inputs.until = at::zeros({5}, at::kLong); }},
    {"until", [](RampCase& c) { c.inputs.until = at::zeros({6}); }},
    {"row_span", [](RampCase& c) { c.options.row_span = at::zeros({5}); }},
    {"row_span", [](RampCase& c) { c.options.row_span = at::zeros({6}, at::kLong); }},
    {"row_span",
     [](RampCase& c) {
       c.options.row_span = at::zeros({6, 1});
     }},
    {"head_span", [](RampCase& c) { c.options.head_span = at::zeros({6}); }},
    {"not both", [](RampCase& c) { c.options.row_span = at::zeros({6}), c.options.head_span = at::zeros({3}); }},
    {"position",
     [](RampCase& c) {
       c.options.position = at::zeros({5, 3});
     }},
    {"position", [](RampCase& c) { c.options.position = at::zeros({4}); }},
    {"position", [](RampCase& c) { c.options.position = at::zeros({}); }},
    {"logit", [](RampCase& c) { c.options.logit = at::zeros({6}); }},
    {"logit",
     [](RampCase& c) {
       c.options.logit = at::zeros({3, 6});
     }},
    {"ramp must", [](RampCase& c) { c.options.ramp = 0; }},
    {"ramp must", [](RampCase& c) { c.options.ramp = NAN; }},
    {"ramp must", [](RampCase& c) { c.options.ramp = INFINITY; }},
    {"ramp must", [](RampCase& c) { c.options.ramp = 1e-46; }},
    {"age_bias", [](RampCase& c) { c.options.age_bias = at::zeros({3}); }},
    {"age_bias",
     [](RampCase& c) {
       c.options.age_bias = at::zeros({2, 5});
     }},
    {"age_bias",
     [](RampCase& c) {
       c.options.age_bias = at::zeros({3, 0});
     }},
    {"age_bias",
     [](RampCase& c) {
       c.options.age_bias = at::zeros({3, 5}, at::kLong);
     }},
    {"bias_age", [](RampCase& c) { c.options.bias_age = int64_t{1} << 40; }},
    {"bias_age", [](RampCase& c) { c.options.bias_age = std::numeric_limits<int64_t>::min(); }},
    {"scale", [](RampCase& c) { c.options.scale = 1e-30; }},
    {"scale", [](RampCase& c) { c.options.scale = 0; }},
    {"scale", [](RampCase& c) { c.options.scale = NAN; }},
    {"max_age", [](RampCase& c) { c.options.min_age = 3, c.options.max_age = 2; }},
    {"dropout", [](RampCase& c) { c.options.dropout = 1, c.options.seed = at::zeros({1}, at::kLong); }},
    {"dropout", [](RampCase& c) { c.options.dropout = -0.1, c.options.seed = at::zeros({1}, at::kLong); }},
    {"dropout", [](RampCase& c) { c.options.dropout = NAN, c.options.seed = at::zeros({1}, at::kLong); }},
    {"seed", [](RampCase& c) { c.options.dropout = 0.1; }},
    {"seed", [](RampCase& c) { c.options.dropout = 0.1, c.options.seed = at::zeros({2}, at::kLong); }},
    {"seed", [](RampCase& c) { c.options.dropout = 0.1, c.options.seed = at::zeros({1}); }},
};

/// With autograd, without, and in inference mode, which skips autograd's kernels altogether.
TEST(RampAttentionErrors, NameTheIllShapedInput) {
  for (const auto& fault : kFaults) {
    for (bool inference : {false, true}) {
      const c10::InferenceMode mode(inference);
      RampCase c = plain_case(at::kFloat);
      fault.apply(c);
      const std::string message = torch_error_of([&] { ramp_attention(c.inputs, c.options); });
      EXPECT_NE(message.find(fault.word), std::string::npos)
          << fault.word << (inference ? " in inference mode" : "") << ": " << message;
    }
  }
}

TEST(RampAttentionErrors, BackwardChecksItsInputsToo) {
  const RampCase good = plain_case(at::kFloat);
  const auto y = ramp_attention(good.inputs, good.options);
  const Tensor grad_out = at::ones_like(y.out), grad_sum = at::ones_like(y.ramp_sum);
  for (const auto& fault : kFaults) {
    RampCase c = plain_case(at::kFloat);
    fault.apply(c);
    const auto message = torch_error_of([&] { ramp_attention_backward(grad_out, grad_sum, c.inputs, c.options, y); });
    EXPECT_NE(message.find(fault.word), std::string::npos) << fault.word << ": " << message;
  }
  auto message = [&](const Tensor& out, const Tensor& sum, const RampOutputs& outputs) {
    return torch_error_of([&] { ramp_attention_backward(out, sum, good.inputs, good.options, outputs); });
  };
  RampOutputs short_out = y, short_stats = y;
  short_out.out = y.out[0];
  short_stats.stats = y.stats.select(3, 0);
  EXPECT_NE(message(grad_out[0], grad_sum, y).find("grad_out"), std::string::npos);
  EXPECT_NE(message(grad_out, grad_sum.sum(), y).find("grad_ramp_sum"), std::string::npos);
  EXPECT_NE(message(grad_out, grad_sum, short_out).find("out"), std::string::npos);
  EXPECT_NE(message(grad_out, grad_sum, short_stats).find("stats"), std::string::npos);
  EXPECT_EQ(message(grad_out, grad_sum, y), "");
}

}  // namespace
}  // namespace lapse
