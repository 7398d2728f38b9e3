// The attention operators on a device that has no kernels for them: the references, with the CPU's numbers.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_testing.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

std::vector<std::optional<Tensor>*> optional(RampOptions& o) {
  return {&o.row_span, &o.head_span, &o.position, &o.logit, &o.age_bias, &o.seed};
}
std::vector<std::optional<Tensor>*> optional(SelectiveOptions& o) {
  return {&o.masking, &o.first, &o.select_q, &o.select_k, &o.position, &o.age_bias, &o.seed};
}

/// All but the offsets.
template <class Case>
Case on_second_device(Case c) {
  auto& x = c.inputs;
  for (Tensor* each : {&x.q, &x.k, &x.v, &x.start, &x.time}) *each = each->to(second_device());
  auto optionals = optional(c.options);
  optionals.push_back(&x.until);
  for (auto* each : optionals)
    if (*each) *each = (*each)->to(second_device());
  return c;
}

/// The gradients of the leaves, from sum(out * its own sines) and the sum of `more`.
template <class Case>
Tensors gradients(Case& c, const Tensor& out, const Tensor& more) {
  const Tensor weight = at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes()).to(out.options());
  ((out * weight).sum() + more.sum()).backward();
  Tensors all;
  for (const auto& [name, leaf] : leaves_of(c)) all.push_back(leaf.grad());
  return all;
}

template <class Case>
void require_gradients(Case& c) {
  for (auto& [name, leaf] : leaves_of(c)) leaf.requires_grad_(true);
}

Tensors results(RampCase c) {
  require_gradients(c);
  const auto y = ramp_attention(c.inputs, c.options);
  Tensors all = gradients(c, y.out, y.ramp_sum);
  for (const Tensor& each : {y.out, y.ramp_sum, y.received, y.stats}) all.push_back(each.detach());
  return all;
}

Tensors results(SelectiveCase c) {
  require_gradients(c);
  const auto y = selective_attention(c.inputs, c.options);
  Tensors all = gradients(c, y.out, y.memory);
  for (const Tensor& each : {y.out, y.memory, y.masking, y.stats, selective_prune(c.inputs, c.options, 3)})
    all.push_back(each.detach());
  return all;
}

// float64 is the reference on both.
template <class Case>
void expect_same(const Case& c) {
  const Tensors got = results(on_second_device(c)), expected = results(c);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].device(), second_device()) << c.text << ", tensor " << i;
    EXPECT_LT(error_between(got[i].to(at::kCPU), expected[i]), 1e-12) << c.text << ", tensor " << i;
  }
}

TEST(AttentionDevice, RampAttentionRunsItsReference) {
  const Threads one(1);
  for (uint64_t seed = 0; seed < 24; ++seed) {
    RampCase c = random_ramp_case(seed, at::kDouble, /*small=*/true, 0.01);
    c.options.received = seed % 2 == 0;
    if (seed % 3 == 0) c.options.dropout = 0.25, c.options.seed = at::full({1}, 7, at::kLong);
    expect_same(c);
  }
}

TEST(AttentionDevice, SelectiveAttentionRunsItsReference) {
  const Threads one(1);
  for (uint64_t seed = 0; seed < 24; ++seed)
    expect_same(random_selective_case(seed, {{1, 2}, {1, 2, 5}, {1, 2}, {1, 3}, {0, 1, 9}}));
}

// float32 has kernels of its own on the CPU, also for a single query without gradients.
TEST(AttentionDevice, Float32DoesNotGoToTheKernelsOfTheCpu) {
  at::NoGradGuard no_grad;
  for (const int64_t K : {1, 5}) {
    RampCase c;
    Random random(1, "device");
    const auto normal = [&](at::IntArrayRef shape) { return random_normal(shape, random).to(at::kFloat); };
    c.inputs = {
        normal({1, K, 2, 8}),           normal({9, 2, 8}),       normal({9, 2, 8}), at::tensor({0, 9}, at::kLong),
        at::tensor({9 - K}, at::kLong), at::arange(9, at::kLong)};
    c.options.min_age = 0;
    const auto there = on_second_device(c);
    EXPECT_LT(error_between(ramp_attention(there.inputs, there.options).out.to(at::kCPU),
                            ramp_attention(c.inputs, c.options).out),
              1e-6);
    SelectiveCase s;
    s.inputs = {c.inputs.q, c.inputs.k, c.inputs.v, c.inputs.offsets, c.inputs.start, c.inputs.time};
    const auto selective = on_second_device(s);
    EXPECT_LT(error_between(selective_attention(selective.inputs, selective.options).out.to(at::kCPU),
                            selective_attention(s.inputs, s.options).out),
              1e-6);
  }
}

/// Every third row of a sample is seen by no query, and holds this.
template <class Case>
Tensors with_unseen_rows(Case c, double key, double value) {
  auto& x = c.inputs;
  const auto* offsets = x.offsets.template const_data_ptr<int64_t>();
  x.until = at::full({x.k.size(0)}, int64_t{1} << 40, at::kLong);
  for (int64_t b = 0; b < x.q.size(0); ++b)
    for (int64_t row = offsets[b]; row < offsets[b + 1]; row += 3) {
      (*x.until)[row] = x.start[b];
      x.k[row].fill_(key), x.v[row].fill_(value);
    }
  return results(c);
}

TEST(AttentionReference, RowsThatNoQuerySeesMayHoldAnything) {
  const Threads one(1);
  const auto expect_same = [](const auto& make) {
    const Tensors got = with_unseen_rows(make(), NAN, INFINITY), expected = with_unseen_rows(make(), 0, 0);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << make().text << ", tensor " << i;
  };
  for (uint64_t seed = 0; seed < 12; ++seed) {
    expect_same([&] {
      RampCase c = random_ramp_case(seed, at::kDouble, /*small=*/true, 0.01);
      c.options.received = seed % 2 == 0;
      return c;
    });
    expect_same([&] {
      SelectiveCase c = random_selective_case(seed, {{1, 2}, {1, 2, 5}, {1, 2}, {1, 3}, {1, 9}});
      for (Tensor* each : {&c.inputs.k, &c.inputs.v}) each->nan_to_num_(0);  // spare rows
      return c;
    });
  }
}

TEST(AttentionDevice, RefusesRowsOfAnotherDevice) {
  const RampCase c = random_ramp_case(3, at::kDouble, /*small=*/true, 0.01);
  RampCase mixed = on_second_device(c);
  mixed.inputs.time = c.inputs.time;
  EXPECT_THROW(ramp_attention(mixed.inputs, mixed.options), c10::Error);
  RampCase other = c;  // of which the kernels of the CPU would read what is not theirs
  other.inputs.time = other.inputs.time.to(second_device());
  EXPECT_THAT(torch_error_of([&] { ramp_attention(other.inputs, other.options); }),
              testing::HasSubstr("time must be on cpu, as q is"));
}

}  // namespace
}  // namespace lapse
