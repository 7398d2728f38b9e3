// selective_prune against its rules, written out for one query after the other.
#include <gtest/gtest.h>

#include <algorithm>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_testing.h"

namespace lapse {
namespace {

using at::Tensor;

// The rules of section 4 from the other end: before each query the rows it would see, sorted by who goes first. F is
// that of the naive formula for a block that ends before the query.
std::vector<int64_t> naive_prune(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget) {
  const int64_t N = x.k.size(0), K = x.q.size(1);
  const Tensor first = o.first.value_or(at::zeros({N}, at::kBool)).contiguous();
  const bool* spared = first.const_data_ptr<bool>();
  std::vector<int64_t> until = x.until ? integers(*x.until) : std::vector<int64_t>(N, INT64_MAX);
  const auto time = integers(x.time), offsets = integers(x.offsets), start = integers(x.start);
  for (int64_t t = 0; t < K; ++t) {
    std::vector<double> F(N, 0);
    if (t > 0) {
      AttentionInputs before = x;
      SelectiveOptions options = o;
      options.dropout = 0;
      before.q = x.q.narrow(1, 0, t);
      if (o.select_q) options.select_q = o.select_q->narrow(1, 0, t);
      F = doubles(naive_selective_attention(before, options).masking);
    } else if (o.masking) {
      F = doubles(*o.masking);
    }
    for (size_t b = 0; b < start.size(); ++b) {
      const int64_t now = start[b] + t;
      std::vector<int64_t> held;
      bool self = false;
      for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
        if (time[i] > now || now - time[i] > o.max_age || now >= until[i]) continue;
        if (time[i] == now)
          self = true;
        else
          held.push_back(i);
      }
      std::sort(held.begin(), held.end(), [&](int64_t i, int64_t j) {
        if (F[i] != F[j]) return F[i] > F[j];
        return spared[i] == spared[j] ? time[i] < time[j] : spared[j];
      });
      for (int64_t i = 0; i < static_cast<int64_t>(held.size()) + self - budget; ++i)
        if (i < static_cast<int64_t>(held.size())) until[held[i]] = now;
    }
  }
  return until;
}

TEST(SelectivePrune, FollowsTheRules) {
  const Threads one(1);
  int64_t dropped = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const SelectiveCase c =
        random_selective_case(seed, {{1, 2}, {1, 2, 5, 13, 20}, {1, 2}, {3, 8}, {0, 1, 11, 20, 40}});
    for (int64_t budget : {1, 2, 5, 16, 64}) {
      const auto expected = naive_prune(c.inputs, c.options, budget);
      for (bool reference : {true, false}) {
        const Tensor until = reference ? selective_prune_reference(c.inputs, c.options, budget)
                                       : selective_prune(c.inputs, c.options, budget);
        EXPECT_EQ(integers(until), expected) << c.text << ", budget " << budget << ", reference " << reference;
      }
      for (int64_t i = 0; i < c.inputs.k.size(0); ++i) dropped += expected[i] < 5000;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(dropped, 500);
}

TEST(SelectivePrune, NoQuerySeesMoreThanTheBudget) {
  Random random(1, "budget");
  const int64_t K = 150, D = 16;
  const AttentionInputs x = {random_normal({1, K, 2, D}, random).to(at::kFloat),
                             random_normal({K, 2, D}, random).to(at::kFloat),
                             random_normal({K, 2, D}, random).to(at::kFloat),
                             at::arange(2, at::kLong) * K,
                             at::zeros({1}, at::kLong),
                             at::arange(K, at::kLong)};
  for (int64_t budget : {1, 8, 100, 150}) {
    const auto until = integers(selective_prune(x, {.first = x.time == 0}, budget));
    EXPECT_EQ(until, integers(selective_prune_reference(x, {.first = x.time == 0}, budget)));
    for (int64_t t = 0; t < K; ++t) {
      int64_t held = 0;
      for (int64_t i = 0; i <= t; ++i) held += until[i] > t;
      EXPECT_EQ(held, std::min(t + 1, budget));
    }
    // The first token goes last: only a budget of one leaves it no room.
    EXPECT_EQ(until[0] > K, budget > 1);
  }
}

// Which rows go where F is no number is not defined, but so many go as must.
TEST(SelectivePrune, KeepsTheBudgetWithoutNumbers) {
  constexpr int64_t N = 40, D = 4, kBudget = 12;
  for (const float value : {NAN, INFINITY, -INFINITY})
    for (const int64_t K : {1, 24})
      for (const int64_t every : {1, 3}) {
        Random random(3, "budget");
        const auto normal = [&](at::IntArrayRef shape) { return random_normal(shape, random).to(at::kFloat); };
        const AttentionInputs x = {normal({1, K, 2, D}),
                                   normal({N, 2, D}),
                                   normal({N, 2, D}),
                                   at::arange(2, at::kLong) * N,
                                   at::full({1}, N - K, at::kLong),
                                   at::arange(N, at::kLong)};
        const Tensor odd = at::remainder(x.time, every) == 0, masking = normal({N}).masked_fill_(odd, value);
        for (const Tensor& first : {x.time == 0, at::remainder(x.time, 2) == 0})
          for (auto* prune : {selective_prune, selective_prune_reference}) {
            const auto until = integers(prune(x, {.masking = masking, .first = first}, kBudget));
            for (int64_t now = N - K; now < N; ++now) {
              int64_t held = 0;
              for (int64_t i = 0; i <= now; ++i) held += until[i] > now;
              EXPECT_EQ(held, std::min(now + 1, kBudget)) << value << ", " << K << ", " << every;
            }
          }
      }
}

// Memory that comes with many more rows than the budget, as where a run is read with a smaller one: they go at once.
TEST(SelectivePrune, ManyRowsGoAtOnce) {
  Random random(2, "budget");
  const int64_t N = 300, K = 20, D = 8;
  const AttentionInputs x = {random_normal({2, K, 2, D}, random).to(at::kFloat),
                             random_normal({2 * N, 2, D}, random).to(at::kFloat),
                             random_normal({2 * N, 2, D}, random).to(at::kFloat),
                             at::arange(3, at::kLong) * N,
                             at::full({2}, N - K, at::kLong),
                             at::arange(N, at::kLong).repeat({2})};
  const Tensor first = at::logical_or(x.time == 0, at::remainder(x.time, 37) == 5);
  for (const Tensor& masking : {random_normal({2 * N}, random).to(at::kFloat).relu(), at::zeros({2 * N}, at::kFloat)})
    for (int64_t budget : {1, 3, 16, 150, 278, 279, 280, 300}) {
      const SelectiveOptions options{.masking = masking, .first = first};
      EXPECT_EQ(integers(selective_prune(x, options, budget)), integers(selective_prune_reference(x, options, budget)))
          << budget;
    }
}

// Rows that nobody has masked yet are equal: the oldest goes, those that are first after the others.
TEST(SelectivePrune, TiesGoToTheOldest) {
  constexpr int64_t K = 6;
  const AttentionInputs x = {at::zeros({1, K, 1, 4}),      at::zeros({K, 1, 4}),      at::zeros({K, 1, 4}),
                             at::arange(2, at::kLong) * K, at::zeros({1}, at::kLong), at::arange(K, at::kLong)};
  auto first = [](std::vector<int64_t> rows) {
    const Tensor is = at::zeros({K}, at::kBool);
    for (int64_t i : rows) is[i] = true;
    return SelectiveOptions{.first = is};
  };
  using Until = std::vector<int64_t>;
  constexpr int64_t never = INT64_MAX;
  for (auto* prune : {selective_prune, selective_prune_reference}) {
    EXPECT_EQ(integers(prune(x, {}, 3)), (Until{3, 4, 5, never, never, never}));
    EXPECT_EQ(integers(prune(x, first({0}), 3)), (Until{never, 3, 4, 5, never, never}));
    EXPECT_EQ(integers(prune(x, first({0, 1, 2, 4}), 3)), (Until{3, 5, never, 4, never, never}));
  }
}

}  // namespace
}  // namespace lapse
