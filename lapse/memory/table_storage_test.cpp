// The memory table's storage - growth in place, bounds, copies - and gradients through it.
#include <gtest/gtest.h>

#include <set>

#include "lapse/memory/table.h"
#include "lapse/memory/table_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

// ---------------------------------------------------------------------------------------------------------

TEST(MemoryTableStorage, GrowsInPlaceAndOldViewsStay) {
  MemoryTable table(1);
  std::vector<Tensor> views;
  std::set<const void*> places;
  const int64_t steps = 2000;
  for (int64_t t = 0; t < steps; ++t) {
    append_one(table, t);
    views.push_back(table.column("x"));
    places.insert(views.back().const_data_ptr());
  }
  // Room for a quarter more each time: log(2000 / 16) / log(1.25) = 22 moves and the first few.
  EXPECT_LE(places.size(), 30u);
  const Tensor expected = at::arange(steps, at::kFloat).unsqueeze(1).expand({steps, 4});
  for (int64_t t = 0; t < steps; t += 37) EXPECT_TRUE(views[t].equal(expected.narrow(0, 0, t + 1))) << t;
}

TEST(MemoryTableStorage, StaysBoundedWhileRowsComeAndGo) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    const int64_t rows = 50;
    int64_t most = 0;
    for (int64_t t = 0; t < 10000; ++t) {
      append_one(table, t);
      if (t >= rows) table.keep(table.time() > t - rows);
      most = std::max(most, table.bytes());
    }
    EXPECT_EQ(table.rows(), B * rows);
    const int64_t needed = B * rows * (4 * sizeof(float) + sizeof(int64_t));
    EXPECT_LE(most, 2 * needed) << B;
    EXPECT_GE(table.bytes(), needed) << B;
    EXPECT_EQ(table.time().min().item<int64_t>(), 10000 - rows);
  }
}

TEST(MemoryTableStorage, CountsRowsSinceTheLastKeep) {
  MemoryTable table(2);
  const at::Tensor start = at::zeros({2}, at::kLong);
  append_at(table, start, {{"x", at::ones({2, 3, 1})}});
  append_at(table, start + 3, {{"x", at::ones({2, 1, 1})}});
  EXPECT_EQ(table.unsifted(), 8);
  table.keep(at::ones({8}, at::kBool));
  EXPECT_EQ(table.unsifted(), 0);
  append_at(table, start + 4, {{"x", at::ones({2, 1, 1})}});
  EXPECT_EQ(table.unsifted(), 2);
}

TEST(MemoryTableStorage, KeepReleasesWhatRowsHeld) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    append_at(table, at::zeros({B}, at::kLong), {{"x", at::ones({B, 1000, 64})}});
    const int64_t before = table.bytes();
    table.keep(table.time() >= 990);
    EXPECT_LT(table.bytes() * 20, before) << B;
  }
}

TEST(MemoryTableStorage, CopiesGrowApart) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    for (int64_t t = 0; t < 3; ++t) append_one(table, t);
    MemoryTable copy = table, second(B);
    second = table;
    append_one(table, 10);
    append_one(copy, 20);
    append_one(second, 30);
    append_one(copy, 21);
    append_one(table, 11);
    auto times = [](const MemoryTable& t) { return integers(t.time().narrow(0, 0, t.rows_of(0))); };
    EXPECT_EQ(times(table), (std::vector<int64_t>{0, 1, 2, 10, 11}));
    EXPECT_EQ(times(copy), (std::vector<int64_t>{0, 1, 2, 20, 21}));
    EXPECT_EQ(times(second), (std::vector<int64_t>{0, 1, 2, 30}));
    EXPECT_EQ(copy.column("x")[-1][0].item<float>(), 21);
    MemoryTable moved = std::move(copy);
    append_one(moved, 22);
    EXPECT_EQ(times(moved), (std::vector<int64_t>{0, 1, 2, 20, 21, 22}));
  }
}

// ----- gradients
// -------------------------------------------------------------------------------------------------------

TEST(MemoryTableGradient, ReachesEveryBlockUntilDetach) {
  for (int64_t B : {1, 3}) {
    auto leaf = [&](int64_t K) { return at::ones({B, K, 2}, at::kDouble).requires_grad_(true); };
    const Tensor old = leaf(2), first = leaf(2), second = leaf(3);
    MemoryTable table(B);
    append_at(table, at::zeros({B}, at::kLong), {{"x", old}});
    table.detach();
    append_at(table, at::full({B}, 2, at::kLong), {{"x", first * 2}});
    table.keep(table.time() != 3);  // the second row of `first` goes
    append_at(table, at::full({B}, 4, at::kLong), {{"x", second * 3}});
    ASSERT_EQ(table.rows(), B * 6);
    const Tensor weight = at::arange(B * 6 * 2, at::kDouble).view({B, 6, 2}) + 1;
    (table.column("x").view({B, 6, 2}) * weight).sum().backward();
    EXPECT_FALSE(old.grad().defined());
    EXPECT_TRUE(first.grad().select(1, 0).equal(weight.select(1, 2) * 2));
    EXPECT_TRUE(first.grad().select(1, 1).equal(at::zeros({B, 2}, at::kDouble)));
    EXPECT_TRUE(second.grad().equal(weight.narrow(1, 3, 3) * 3));
    table.detach();
    EXPECT_FALSE(table.column("x").requires_grad());
  }
}

// Autograd keeps views of the columns until its backward pass, which may come after the next block.
TEST(MemoryTableGradient, SurvivesAnAppendBetweenForwardAndBackward) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    for (int64_t t = 0; t < 3; ++t) append_one(table, t);
    const Tensor weight = at::ones({4}).requires_grad_(true);
    const Tensor loss = (table.column("x") * weight).sum();
    append_one(table, 3);
    loss.backward();
    EXPECT_TRUE(weight.grad().equal(at::full({4}, 3. * B)));  // 0 + 1 + 2 for each sample
  }
}

}  // namespace
}  // namespace lapse
