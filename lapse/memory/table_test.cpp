// The memory table against vectors of rows; errors, saved tables.
#include "lapse/memory/table.h"

#include <gtest/gtest.h>

#include "lapse/core/random.h"
#include "lapse/memory/table_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// The same table, naively: a vector of rows per sample. A row's number stands for its values in every column.
struct NaiveRow {
  int64_t time, number;
};
using NaiveTable = std::vector<std::vector<NaiveRow>>;

/// Columns of several types and shapes, all from one number per row: [...].
Columns columns_of(const Tensor& numbers) {
  const Tensor x = numbers.to(at::kDouble);
  return {{"plain", numbers.to(at::kFloat) * 0.5},
          {"integer", numbers * 3},
          {"matrix", x.unsqueeze(-1).unsqueeze(-1) + at::arange(6, at::kDouble).view({2, 3})},
          {"empty", x.unsqueeze(-1).narrow(-1, 0, 0)}};
}

void expect_equal(const MemoryTable& table, const NaiveTable& naive) {
  std::vector<int64_t> offsets = {0}, sample, time, numbers;
  for (size_t b = 0; b < naive.size(); ++b) {
    for (const auto& row : naive[b]) {
      sample.push_back(static_cast<int64_t>(b));
      time.push_back(row.time);
      numbers.push_back(row.number);
    }
    offsets.push_back(static_cast<int64_t>(time.size()));
    ASSERT_EQ(table.rows_of(b), naive[b].size());
  }
  ASSERT_EQ(table.samples(), naive.size());
  ASSERT_EQ(table.rows(), time.size());
  ASSERT_EQ(integers(table.offsets()), offsets);
  ASSERT_EQ(integers(table.sample()), sample);
  if (time.empty()) return;
  ASSERT_EQ(integers(table.time()), time);
  for (const auto& [name, values] : columns_of(at::tensor(numbers, at::kLong))) {
    ASSERT_EQ(table.column(name).scalar_type(), values.scalar_type()) << name;
    ASSERT_TRUE(table.column(name).equal(values)) << name;
  }
}

class RandomTable {
 public:
  RandomTable(int64_t samples, uint64_t seed)
      : random_(seed, "table"), table_(samples), naive_(samples), clock_(samples, 0) {}

  void step() {
    const auto what = random_.below(10);
    if (what < 5)
      append(1 + static_cast<int64_t>(random_.below(4)));
    else if (what < 9)
      keep(std::initializer_list<double>{0, 0.3, 0.9, 1}.begin()[random_.below(4)]);
    else
      reset(static_cast<int64_t>(random_.below(naive_.size())), random_.below(4) == 0);
    expect_equal(table_, naive_);
  }

 private:
  void append(int64_t K) {
    const auto B = static_cast<int64_t>(naive_.size());
    for (int64_t b = 0; b < B; ++b) {
      clock_[b] += static_cast<int64_t>(random_.below(3));  // a gap, or none
      for (int64_t i = 0; i < K; ++i) naive_[b].push_back({clock_[b] + i, next_ + b * K + i});
    }
    append_at(table_, at::tensor(clock_, at::kLong),
              columns_of(at::arange(next_, next_ + B * K, at::kLong).view({B, K})));
    for (auto& clock : clock_) clock += K;
    next_ += B * K;
  }

  void keep(double share) {
    std::vector<uint8_t> mask;
    for (auto& rows : naive_) {
      std::vector<NaiveRow> kept;
      for (const auto& row : rows) {
        mask.push_back(random_.uniform() < share);
        if (mask.back()) kept.push_back(row);
      }
      rows = kept;
    }
    Tensor tensor = at::empty({static_cast<int64_t>(mask.size())}, at::kBool);
    std::copy(mask.begin(), mask.end(), tensor.data_ptr<bool>());
    table_.keep(tensor);
  }

  void reset(int64_t b, bool all) {
    std::vector<int64_t> samples = {b};
    if (all) samples.resize(naive_.size()), std::iota(samples.begin(), samples.end(), 0);
    table_.reset(samples);
    for (const int64_t sample : samples) naive_[sample].clear();
  }

  Random random_;
  MemoryTable table_;
  NaiveTable naive_;
  std::vector<int64_t> clock_;
  int64_t next_ = 1;
};

TEST(MemoryTable, AgreesWithVectorsOfRows) {
  for (int64_t B : {1, 2, 5})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      RandomTable random(B, seed);
      for (int step = 0; step < 120; ++step) {
        random.step();
        if (HasFatalFailure()) FAIL() << "B " << B << ", seed " << seed << ", step " << step;
      }
    }
}

// Empty tables, packed ones and one with room among them: each is left as it would be by itself.
TEST(MemoryTable, SeveralLoseRowsAtOnce) {
  std::vector<MemoryTable> tables;
  for (const int64_t B : {2, 0, 1, 3, 2}) tables.emplace_back(B);
  for (const size_t i : {0, 2, 3})
    append_at(tables[i], at::full({tables[i].samples()}, 10, at::kLong),
              columns_of(at::arange(tables[i].samples() * 5, at::kLong).view({tables[i].samples(), 5})));
  tables[3].reserve(4);
  std::vector<MemoryTable> alone = tables;
  std::vector<MemoryTable::Sieve> sieves;
  for (size_t i = 0; i < tables.size(); ++i) {
    const Tensor mask =
        tables[i].rows() == 0 ? at::ones({0}, at::kBool) : (tables[i].time() + tables[i].sample()).remainder(3) != 1;
    sieves.push_back({&tables[i], mask});
    alone[i].keep(mask);
  }
  MemoryTable::keep(sieves);
  int64_t rows = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    EXPECT_TRUE(at::equal(tables[i].offsets(), alone[i].offsets())) << i;
    EXPECT_EQ(tables[i].room(), alone[i].room());
    for (const auto& [name, values] : tables[i].columns()) {
      EXPECT_TRUE(at::equal(values, alone[i].column(name))) << name;
    }
    rows += tables[i].rows();
  }
  EXPECT_GT(rows, 0);
}

TEST(MemoryTable, InsertsRowsAtTheirPlaces) {
  for (const bool filled : {false, true})
    for (int64_t B : {1, 3}) {
      MemoryTable table(B);
      Columns rows = columns_of(at::arange(100, 100 + B * 2, at::kLong));
      if (filled) append_at(table, at::full({B}, 10, at::kLong), columns_of(at::arange(B * 4, at::kLong).view({B, 4})));
      std::vector<int64_t> sample, time;
      NaiveTable naive(B);
      for (int64_t b = 0; b < B; ++b) {
        for (int64_t i = 0; filled && i < 4; ++i) naive[b].push_back({10 + i, b * 4 + i});
        // One before the others and one after them; given in no order.
        naive[b].insert(naive[b].begin(), {-5 - b, 100 + b});
        naive[b].push_back({50 + b, 100 + B + b});
      }
      for (int64_t b = 0; b < B; ++b) sample.push_back(b), time.push_back(-5 - b);
      for (int64_t b = 0; b < B; ++b) sample.push_back(b), time.push_back(50 + b);
      rows["time"] = at::tensor(time, at::kLong);
      rows["kind"] = at::zeros({2 * B}, at::kByte);
      table.insert(at::tensor(sample, at::kLong), rows);
      expect_equal(table, naive);
      append_at(table, at::full({B}, 60, at::kLong), columns_of(at::arange(200, 200 + B, at::kLong).view({B, 1})));
      for (int64_t b = 0; b < B; ++b) naive[b].push_back({60, 200 + b});
      expect_equal(table, naive);
    }
}

TEST(MemoryTable, ReplacesAColumnAndGrowsOn) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    append_one(table, 0);
    append_one(table, 1);
    const Tensor mine = at::full({4 * B, 4}, 7.);  // longer than the column: the table must not write to the rest
    table.replace("x", mine.narrow(0, 0, 2 * B));
    append_one(table, 2);
    EXPECT_EQ(table.column("x").select(1, 0).max().item<float>(), 7);
    EXPECT_EQ(table.column("x")[-1][0].item<float>(), 2);
    EXPECT_TRUE(mine.equal(at::full({4 * B, 4}, 7.)));
  }
}

TEST(MemoryTable, BeginsEmpty) {
  for (int64_t B : {0, 1, 3}) {
    MemoryTable table(B);
    EXPECT_EQ(table.samples(), B);
    EXPECT_EQ(table.rows(), 0);
    EXPECT_EQ(table.bytes(), 0);
    EXPECT_EQ(integers(table.offsets()), std::vector<int64_t>(B + 1, 0));
    EXPECT_EQ(table.sample().numel(), 0);
    table.keep(at::ones({0}, at::kBool));
    for (int64_t b = 0; b < B; ++b) table.reset(b);
    table.detach();
    EXPECT_EQ(table.rows(), 0);
    EXPECT_THROW(table.column("time"), c10::Error);
  }
}

TEST(MemoryTable, LosesAllRowsAndFillsAgain) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    append_at(table, at::zeros({B}, at::kLong), {{"x", at::ones({B, 3})}});
    table.keep(at::zeros({3 * B}, at::kBool));
    EXPECT_EQ(table.rows(), 0);
    EXPECT_EQ(table.column("x").numel(), 0);
    append_at(table, at::full({B}, 7, at::kLong), {{"x", at::full({B, 2}, 5.)}});
    EXPECT_TRUE(table.column("x").equal(at::full({2 * B}, 5.)));
    EXPECT_EQ(integers(table.time().narrow(0, 0, 2)), (std::vector<int64_t>{7, 8}));
  }
}

TEST(MemoryTable, DoesNotShareTheBlock) {
  for (int64_t B : {1, 2}) {
    MemoryTable table(B);
    const Tensor block = at::ones({B, 3});
    append_at(table, at::zeros({B}, at::kLong), {{"x", block}});
    block.zero_();
    EXPECT_TRUE(table.column("x").equal(at::ones({3 * B})));
  }
}

TEST(MemoryTable, GrowsInPlaceWhereNobodyHoldsAColumn) {
  const at::NoGradGuard no_grad;
  MemoryTable table(1);
  const auto append = [&](int64_t time) {
    table.append({{"time", at::full({1, 1}, time, at::kLong)},
                  {"kind", at::zeros({1, 1}, at::kByte)},
                  {"x", at::full({1, 1, 3}, static_cast<double>(time))}});
  };
  for (int64_t time = 0; time < 3; ++time) append(time);
  const auto* own = table.column("x").unsafeGetTensorImpl();
  append(3);
  EXPECT_EQ(table.column("x").unsafeGetTensorImpl(), own);
  const Tensor held = table.column("x");
  const MemoryTable copy = table;
  append(4);
  EXPECT_EQ(held.size(0), 4);
  EXPECT_EQ(copy.rows(), 4);
  EXPECT_EQ(copy.column("x").size(0), 4);
  EXPECT_EQ(table.rows(), 5);
  for (const Tensor& x : {held, copy.column("x"), table.column("x")})
    EXPECT_TRUE(at::equal(x.select(1, 0), at::arange(x.size(0), at::kFloat))) << x;
}

TEST(MemoryTable, PooledRowsComeFirst) {
  MemoryTable table(2);
  append_at(table, at::zeros({2}, at::kLong), {{"x", at::arange(6, at::kFloat).view({2, 3})}});
  const auto pooled = at::full({3}, static_cast<int64_t>(RowKind::pooled), at::kByte);
  table.insert(
      at::tensor({1, 0, 1}, at::kLong),
      {{"time", at::tensor({2, 1, 0}, at::kLong)}, {"kind", pooled}, {"x", at::tensor({12., 11., 10.}, at::kFloat)}});
  EXPECT_TRUE(table.column("x").equal(at::tensor({11., 0., 1., 2., 10., 12., 3., 4., 5.}, at::kFloat)));
  EXPECT_EQ(integers(table.time()), (std::vector<int64_t>{1, 0, 1, 2, 0, 2, 0, 1, 2}));
  EXPECT_EQ(integers(is_kind(table.kind(), RowKind::pooled).to(at::kLong)),
            (std::vector<int64_t>{1, 0, 0, 0, 1, 1, 0, 0, 0}));
  EXPECT_TRUE(is_token(table.kind()).equal(at::logical_not(is_kind(table.kind(), RowKind::pooled))));
}

// ----- errors and restore
// ----------------------------------------------------------------------------------------------

MemoryTable filled(int64_t B) {
  MemoryTable table(B);
  for (int64_t t = 0; t < 3; ++t) append_one(table, t);
  return table;
}

TEST(MemoryTableErrors, KeepWantsOneBoolPerRow) {
  MemoryTable table = filled(2);
  EXPECT_THROW(table.keep(at::ones({5}, at::kBool)), c10::Error);
  EXPECT_THROW(table.keep(at::ones({7}, at::kBool)), c10::Error);
  EXPECT_THROW(table.keep(at::ones({6, 1}, at::kBool)), c10::Error);
  EXPECT_THROW(table.keep(at::ones({6}, at::kLong)), c10::Error);
  EXPECT_THROW(table.keep(at::ones({}, at::kBool)), c10::Error);
  EXPECT_EQ(table.rows(), 6);
}

TEST(MemoryTableErrors, ReplaceAndInsertWantTheTablesColumns) {
  MemoryTable table = filled(2);
  EXPECT_THROW(table.replace("y", at::ones({6, 4})), c10::Error);
  EXPECT_THROW(table.replace("x", at::ones({5, 4})), c10::Error);
  EXPECT_THROW(table.replace("x", at::ones({6, 4}, at::kDouble)), c10::Error);
  const Tensor sample = at::zeros({1}, at::kLong), time = at::full({1}, 90, at::kLong),
               kind = at::zeros({1}, at::kByte);
  EXPECT_THROW(table.insert(sample, {{"x", at::ones({1, 4})}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(table.insert(sample, {{"x", at::ones({1, 4})}, {"time", time}}), c10::Error);
  EXPECT_THROW(table.insert(sample, {{"time", time}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(table.insert(sample, {{"time", time}, {"kind", kind}, {"x", at::ones({2, 4})}}), c10::Error);
  EXPECT_THROW(table.insert(sample, {{"time", time}, {"kind", kind}, {"x", at::ones({1, 5})}}), c10::Error);
  EXPECT_THROW(table.insert(sample, {{"time", time}, {"kind", kind}, {"x", at::ones({1, 4})}, {"y", time}}),
               c10::Error);
  EXPECT_EQ(table.rows(), 6);
}

TEST(MemoryTableErrors, ThereIsNoSuchSample) {
  EXPECT_THROW(MemoryTable(-1), c10::Error);
  MemoryTable table = filled(2);
  for (const int64_t wrong : {-1, 2}) EXPECT_THROW(table.reset({wrong}), c10::Error);
  EXPECT_EQ(table.rows(), 6);
}

TEST(MemoryTableErrors, AppendWantsTheSameColumnsAndLeavesTheTableIfItFails) {
  for (int64_t B : {1, 2}) {
    const Columns faults[] = {
        {},
        {{"x", at::ones({B + 1, 2, 4})}},
        {{"x", at::ones({B, 2, 5})}},
        {{"x", at::ones({B, 2, 1})}},
        {{"x", at::ones({B, 2})}},
        {{"x", at::ones({B, 2, 4}, at::kDouble)}},
        {{"x", at::ones({B, 2, 4}, at::kMeta)}},
        {{"y", at::ones({B, 2, 4})}},
        {{"a", at::ones({B, 2})}, {"x", at::ones({B, 2, 4})}},
        {{"x", at::ones({B, 2, 4})}, {"z", at::ones({B, 3})}},
    };
    MemoryTable table = filled(B);
    const Tensor x = table.column("x").clone();
    for (size_t i = 0; i < std::size(faults); ++i) {
      EXPECT_THROW(append_at(table, at::full({B}, 3, at::kLong), faults[i]), c10::Error) << B << ", fault " << i;
      ASSERT_TRUE(table.column("x").equal(x) && table.time().size(0) == 3 * B) << B << ", fault " << i;
      ASSERT_EQ(table.columns().size(), 3u);
    }
    EXPECT_THROW(append_at(table, at::zeros({B + 1}, at::kLong), {{"x", at::ones({B, 2, 4})}}), c10::Error);
    EXPECT_THROW(append_at(table, at::zeros({B}), {{"x", at::ones({B, 2, 4})}}), c10::Error);
    const Tensor time = at::zeros({B, 2}, at::kLong), more = at::ones({B, 2, 4});
    EXPECT_THROW(table.append({{"time", time}, {"x", more}}), c10::Error);
    EXPECT_THROW(table.append({{"time", time}, {"kind", time}, {"x", more}}), c10::Error);
    append_one(table, 3);
    EXPECT_EQ(table.rows(), 4 * B);
  }
  MemoryTable none(0);
  EXPECT_THROW(append_at(none, at::zeros({0}, at::kLong), {{"x", at::ones({0, 2})}}), c10::Error);
}

TEST(MemoryTableRestore, ContinuesWhereItWasSaved) {
  for (int64_t B : {1, 2}) {
    MemoryTable table = filled(B);
    table.keep(table.time() != 1);
    MemoryTable restored = MemoryTable::restore(table.offsets(), table.columns());
    append_one(table, 3);
    append_one(restored, 3);
    EXPECT_TRUE(restored.offsets().equal(table.offsets()));
    EXPECT_TRUE(restored.time().equal(table.time()));
    EXPECT_TRUE(restored.column("x").equal(table.column("x")));
  }
}

// A restored column may be a view of a larger tensor, which must not be written.
TEST(MemoryTableRestore, WritesOnlyItsOwnStorage) {
  const Tensor x = at::zeros({10, 4}), time = at::arange(10, at::kLong);
  MemoryTable table = MemoryTable::restore(
      at::tensor({0, 3}, at::kLong),
      {{"x", x.narrow(0, 2, 3)}, {"time", time.narrow(0, 0, 3)}, {"kind", at::zeros({3}, at::kByte)}});
  append_one(table, 50);
  append_one(table, 51);
  EXPECT_EQ(x.abs().max().item<float>(), 0);
  EXPECT_TRUE(time.equal(at::arange(10, at::kLong)));
  EXPECT_EQ(integers(table.time()), (std::vector<int64_t>{0, 1, 2, 50, 51}));
  EXPECT_EQ(table.column("x").select(1, 0).sum().item<float>(), 101);
}

TEST(MemoryTableRestore, RefusesPartsThatDoNotFit) {
  const Tensor time = at::arange(3, at::kLong), kind = at::zeros({3}, at::kByte), x = at::ones({3, 2});
  auto restore = [&](const Tensor& offsets, const Columns& columns) { MemoryTable::restore(offsets, columns); };
  auto offsets = [](std::vector<int64_t> values) { return at::tensor(values, at::kLong); };
  EXPECT_NO_THROW(restore(offsets({0, 1, 3}), {{"time", time}, {"kind", kind}, {"x", x}}));
  EXPECT_NO_THROW(restore(offsets({0, 0}), {}));
  EXPECT_THROW(restore(offsets({0, 2}), {{"time", time}, {"kind", kind}, {"x", x}}), c10::Error);
  EXPECT_THROW(restore(offsets({1, 3}), {{"time", time}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 2, 1, 3}), {{"time", time}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(restore(offsets({}), {}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}).to(at::kInt), {{"time", time}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}).unsqueeze(0), {{"time", time}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}), {{"kind", kind}, {"x", x}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}), {{"time", time}, {"x", x}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}), {{"time", time}, {"kind", time}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}), {{"time", time}, {"kind", kind}, {"x", at::ones({})}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}), {{"time", time.to(at::kFloat)}, {"kind", kind}}), c10::Error);
  EXPECT_THROW(restore(offsets({0, 3}), {{"time", time.unsqueeze(1)}, {"kind", kind}}), c10::Error);
}

}  // namespace
}  // namespace lapse
