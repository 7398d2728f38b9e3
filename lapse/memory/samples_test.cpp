#include "lapse/memory/samples.h"

#include <gtest/gtest.h>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

/// Samples of so many rows; row i of the table holds the number i.
MemoryTable table_of(const std::vector<int64_t>& rows) {
  std::vector<int64_t> offsets = {0}, times;
  for (const int64_t n : rows) {
    offsets.push_back(offsets.back() + n);
    for (int64_t t = 0; t < n; ++t) times.push_back(t);
  }
  if (offsets.back() == 0) return MemoryTable(std::ssize(rows));
  return MemoryTable::restore(at::tensor(offsets), {{"time", at::tensor(times)},
                                                    {"kind", at::zeros({offsets.back()}, at::kByte)},
                                                    {"hidden", at::arange(offsets.back()).view({-1, 1})}});
}

void expect_same(const MemoryTable& a, const MemoryTable& b) {
  EXPECT_TRUE(a.offsets().equal(b.offsets()));
  if (b.rows() == 0) return;
  for (const auto& [name, values] : b.columns()) EXPECT_TRUE(a.column(name).equal(values)) << name;
}

TEST(Samples, PiecesJoinToTheWhole) {
  for (const auto& rows : {std::vector<int64_t>{3, 0, 1, 5, 0, 2}, {0, 0, 0, 4, 0, 0}, {0, 0, 0, 0, 0, 0}}) {
    const MemoryTable whole = table_of(rows);
    for (const int64_t parts : {1, 2, 3, 6}) {
      std::vector<MemoryTable> pieces;
      for (int64_t p = 0; p < parts; ++p) pieces.push_back(samples_of(whole, p * 6 / parts, 6 / parts));
      expect_same(joined(pieces), whole);
    }
  }
}

TEST(Samples, APieceHasItsOwnRows) {
  const MemoryTable piece = samples_of(table_of({3, 0, 1, 5}), 1, 2);
  EXPECT_TRUE(piece.offsets().equal(at::tensor({0, 0, 1}, at::kLong)));
  EXPECT_EQ(piece.column("hidden").item<int64_t>(), 3);
  EXPECT_EQ(piece.time().item<int64_t>(), 0);
}

TEST(Samples, RowsHaveWhatTheirSamplesHave) {
  for (const auto& rows : {std::vector<int64_t>{3, 0, 1, 5}, {0, 2, 0, 0}, {0, 0, 0, 0}}) {
    const MemoryTable table = table_of(rows);
    const at::Tensor values = at::tensor({7, -1, 4, 9}, at::kLong);
    EXPECT_TRUE(at::equal(of_rows(table, values), values.index_select(0, table.sample())));
    EXPECT_TRUE(
        at::equal(of_rows(table, values.to(at::kDouble)), values.to(at::kDouble).index_select(0, table.sample())));
    EXPECT_THROW(of_rows(table, at::zeros({3}, at::kLong)), c10::Error);
  }
}

TEST(Samples, ColumnsAreThoseOfAnotherTable) {
  const MemoryTable table = table_of({2, 3});
  const Columns like = table_of({1}).columns();
  EXPECT_NO_THROW(check_columns(table, like));
  const auto said = [&](const std::string& name, const at::Tensor& values) {
    Columns other = like;
    if (values.defined())
      other[name] = values;
    else
      other.erase(name);
    try {
      check_columns(table, other);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_EQ(said("more", at::zeros({1})), "column 'more' is missing");
  EXPECT_EQ(said("hidden", {}), "there is no column 'hidden'");
  for (const at::Tensor& values : {at::zeros({1, 1}), at::zeros({1, 2}, at::kLong), at::zeros({1}, at::kLong)})
    EXPECT_EQ(said("hidden", values), "column 'hidden' has another type or shape");
  EXPECT_NO_THROW(check_columns(MemoryTable(3), {}));  // a table without rows has no columns yet
}

}  // namespace
}  // namespace lapse
