// ramp_until against the formula m > 0 on tensors, and as the operator's `until`.
#include "lapse/ops/attention/expiry.h"

#include <gtest/gtest.h>

#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Whole and fractional spans, at and beside the corners of the ramp, huge, negative, infinite and NaN.
Tensor awkward_spans(double ramp, at::ScalarType type) {
  std::vector<double> spans = {0,    -0.,  1e-8,  16777217,  1e7,        -1e7, 2e9,
                               -2e9, 1e30, -1e30, kInfinity, -kInfinity, NAN,  0.3};
  for (double age : {-3., 0., 1., 7., 40., 1000., 65536.}) {
    const double corner = age - ramp;  // m = 0 just at this age
    for (double off : {-1., -1e-3, -1e-6, 0., 1e-6, 1e-3, 1.}) spans.push_back(corner + off);
    const auto near = static_cast<float>(corner);
    spans.push_back(std::nextafter(near, 1e9f)), spans.push_back(std::nextafter(near, -1e9f));
  }
  return at::tensor(spans, at::kDouble).to(type);
}

TEST(RampUntil, IsTheFirstQueryWithNothingLeft) {
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (double ramp : {1., 0.1, 3.3, 32., 1000.7, 65536.}) {
      const Tensor span = awkward_spans(ramp, type);
      const int64_t n = span.numel(), far = int64_t{1} << 28;
      const Tensor time = at::arange(n, at::kLong) * 11 - 100;
      const Tensor until = ramp_until(time, span, ramp);
      const Tensor wide = type == at::kBFloat16 ? span.to(at::kFloat) : span;
      // m as the reference computes it, around `until` and at ages far from it.
      for (int64_t off : {-far, int64_t{-2}, int64_t{-1}, int64_t{0}, int64_t{1}, far}) {
        const Tensor near = until.clamp(time - 2 * far, time + 2 * far) + off, age = near - time;
        const Tensor m = ((wide - age) / ramp + 1).clamp(0, 1), seen = m > 0;
        EXPECT_TRUE(seen.equal(near < until)) << at::toString(type) << ", R " << ramp << ", offset " << off;
      }
      EXPECT_TRUE(until.masked_select(wide.isnan()).eq(std::numeric_limits<int64_t>::min()).all().item<bool>());
      EXPECT_TRUE(until.masked_select(wide > 1.5e9).eq(kNoLimit).all().item<bool>());
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = time[i].item<int64_t>();
        EXPECT_EQ(until[i].item<int64_t>(), type == at::kDouble
                                                ? ramp_until(at, wide[i].item<double>(), ramp)
                                                : ramp_until(at, wide[i].item<float>(), static_cast<float>(ramp)));
      }
    }
}

TEST(RampUntil, IsTheSameOnEveryDevice) {
  for (auto type : {at::kFloat, at::kDouble})
    for (double ramp : {1., 0.1, 3.3, 32., 1000.7, 65536.}) {
      Tensor span = awkward_spans(ramp, type);
      span =
          lapse::cat({span, at::rand({500}, span.options()) * 2e9 - 1e9, at::rand({500}, span.options()) * 4e3 - 2e3});
      const Tensor time = at::arange(span.numel(), at::kLong) * 11 - 100;
      const Tensor there = ramp_until(time.to(second_device()), span.to(second_device()), ramp);
      EXPECT_EQ(there.device(), second_device());
      EXPECT_TRUE(there.to(at::kCPU).equal(ramp_until(time, span, ramp))) << at::toString(type) << ", R " << ramp;
    }
}

// The operator with this `until` sees what the reference sees without: to the bit, and so does the operator alone.
TEST(RampUntil, ChangesNoOutput) {
  for (double ramp : {1., 0.1, 3.3, 32.}) {
    const Tensor span = awkward_spans(ramp, at::kFloat).nan_to_num(-1e9, 1e30, -1e30);
    const int64_t n = span.numel(), H = 2, D = 8;
    for (int64_t K : {1, 3, 70}) {
      Random random(3, "until");
      AttentionInputs x = {random_normal({1, K, H, D}, random).to(at::kFloat),
                           random_normal({n, H, D}, random).to(at::kFloat),
                           random_normal({n, H, D}, random).to(at::kFloat),
                           at::arange(2, at::kLong) * n,
                           at::full({1}, n - K, at::kLong),
                           at::arange(n, at::kLong)};
      RampOptions o;
      o.row_span = span, o.ramp = ramp, o.received = true;
      const auto reference = ramp_attention_reference(x, o), alone = ramp_attention(x, o);
      x.until = ramp_until(x.time, span, ramp);
      const auto fused = ramp_attention(x, o), same = ramp_attention_reference(x, o);
      for (const auto& [a, b] : {std::pair{alone.out, fused.out},
                                 {alone.stats, fused.stats},
                                 {reference.out, same.out},
                                 {reference.stats, same.stats}})
        EXPECT_TRUE(a.equal(b)) << "R " << ramp << ", K " << K;
      EXPECT_TRUE((fused.received > 0).equal(reference.received > 0)) << "R " << ramp << ", K " << K;
      EXPECT_LE(error_between(fused.out, reference.out), 2e-6);
    }
  }
}

}  // namespace
}  // namespace lapse
