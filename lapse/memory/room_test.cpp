// A memory table with room against one without: the same rows after any sequence of calls.
#include <gtest/gtest.h>

#include <optional>

#include "lapse/core/random.h"
#include "lapse/memory/table_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;

/// The rows of the table that are no spare ones, and that those are last in their samples and hold what they must.
Tensor held(const MemoryTable& table) {
  const Tensor spare = is_kind(table.kind(), RowKind::spare), sample = table.sample();
  EXPECT_TRUE(spare.equal(table.time() == kSpareTime));
  for (const auto& [name, values] : table.columns())
    if (values.dim() == 1 && name != "time" && name != "kind") {
      EXPECT_FALSE(values.masked_select(spare).ne(0).any().item<bool>()) << name;
    }
  for (int64_t i = 1; i < table.rows(); ++i) {
    const bool last = !spare[i - 1].item<bool>() || spare[i].item<bool>();
    EXPECT_TRUE(last || sample[i].item<int64_t>() > sample[i - 1].item<int64_t>()) << "row " << i;
  }
  return at::logical_not(spare).nonzero().squeeze(1);
}

void expect_same(MemoryTable room, const MemoryTable& packed) {
  room.to(at::kCPU);
  if (room.rows() == 0) {
    ASSERT_EQ(packed.rows(), 0);
    return;
  }
  const Tensor rows = held(room);
  ASSERT_EQ(rows.size(0), packed.rows());
  ASSERT_TRUE(room.sample().index_select(0, rows).equal(packed.sample()));
  if (packed.rows() == 0) return;
  ASSERT_EQ(room.columns().size(), packed.columns().size());
  for (const auto& [name, values] : packed.columns())
    ASSERT_TRUE(room.column(name).index_select(0, rows).equal(values)) << name;
}

/// New values of a column, of the rows of both tables: each the old one's double.
void double_plain(MemoryTable& table) {
  if (table.rows() > 0) table.replace("plain", table.column("plain") * 2);
}

/// A table with room on a device and one without on the CPU, in the same random calls, and a copy of the first that
/// must stay as it is.
class Pair {
 public:
  Pair(int64_t samples, uint64_t seed, at::Device device)
      : random_(seed, "room"),
        device_(device),
        room_(samples),
        packed_(samples),
        clock_(at::zeros({samples}, at::kLong)) {
    room_.reserve(below(5));
  }

  void step() {
    switch (below(10)) {
      case 0:
        room_.reserve(below(9));
        break;
      case 1:
        keep();
        break;
      case 2:
        reset();
        break;
      case 3:
        double_plain(room_), double_plain(packed_);
        break;
      case 4:
        insert();
        break;
      case 5:
        copy_ = room_, copied_ = packed_;
        break;
      case 6:
        room_.to(at::kCPU), room_.to(device_);
        break;
      default:
        append();
    }
    expect_same(room_, packed_);
    if (copied_) expect_same(*copy_, *copied_);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_.below(n)); }
  Tensor uniform(at::IntArrayRef shape) {
    Tensor x = at::zeros(shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data_ptr<float>()[i] = static_cast<float>(random_.uniform());
    return x;
  }

  void append() {
    const int64_t B = packed_.samples(), K = 1 + below(3);
    const Columns block = {{"plain", uniform({B, K})}, {"matrix", uniform({B, K, 2, 3})}};
    append_at(room_, clock_.to(device_), there(block)), append_at(packed_, clock_, block);
    clock_ = clock_ + K;
  }

  /// The masks agree on rows of the same time and sample.
  void keep() {
    const int64_t modulus = 1 + below(4), left = below(modulus);
    for (MemoryTable* table : {&room_, &packed_})
      if (table->rows() > 0) table->keep((table->time() + table->sample()).remainder(modulus) != left);
  }

  void reset() {
    std::vector<int64_t> samples;
    const bool all = below(8) == 0;
    for (int64_t b = 0; b < packed_.samples(); ++b)
      if (all || below(2) == 0) samples.push_back(b);
    for (MemoryTable* table : {&room_, &packed_}) table->reset(samples);
  }

  void insert() {
    if (packed_.rows() == 0) return;
    const Tensor sample = at::full({1}, below(packed_.samples()), at::kLong);
    const Columns row = {{"time", at::full({1}, ++pooled_, at::kLong)},
                         {"kind", at::full({1}, static_cast<int64_t>(RowKind::pooled), at::kByte)},
                         {"plain", uniform({1})},
                         {"matrix", uniform({1, 2, 3})}};
    room_.insert(sample, there(row)), packed_.insert(sample, row);
  }

  Columns there(Columns columns) const {
    for (auto& [name, values] : columns) values = values.to(device_);
    return columns;
  }

  Random random_;
  at::Device device_;
  MemoryTable room_, packed_;
  std::optional<MemoryTable> copy_, copied_;
  Tensor clock_;
  int64_t pooled_ = 0;
};

TEST(MemoryTableRoom, HoldsWhatATableWithoutHolds) {
  for (const auto& device : {at::Device(at::kCPU), second_device()})
    for (const int64_t B : {1, 2, 5})
      for (uint64_t seed = 0; seed < 6; ++seed) {
        Pair pair(B, seed, device);
        for (int i = 0; i < 100; ++i) {
          pair.step();
          if (testing::Test::HasFailure()) FAIL() << device << ", B " << B << ", seed " << seed << ", step " << i;
        }
      }
}

TEST(MemoryTableRoom, GrowsInPlace) {
  MemoryTable table(3);
  append_one(table, 0);
  table.reserve(5);
  EXPECT_EQ(table.room(), 5);
  const void* place = table.column("x").const_data_ptr();
  for (int64_t t = 1; t <= 5; ++t) append_one(table, t);
  table.reset({0, 2});
  EXPECT_EQ(table.room(), 0);
  EXPECT_EQ(table.column("x").const_data_ptr(), place);
  EXPECT_EQ(integers(held(table)), (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
  append_one(table, 6);  // sample 1 is full: every sample gets room anew
  EXPECT_GE(table.room(), 4);
  EXPECT_EQ(integers(table.time().index_select(0, held(table))), (std::vector<int64_t>{6, 0, 1, 2, 3, 4, 5, 6, 6}));
}

TEST(MemoryTableRoom, TensorsTakenBeforeStayAsTheyWere) {
  MemoryTable table(2);
  append_one(table, 0);
  table.reserve(4);
  const Tensor x = table.column("x"), before = x.clone(), time = table.time().narrow(0, 1, 3);
  append_one(table, 1);
  table.reset({1});
  EXPECT_TRUE(x.equal(before));
  EXPECT_TRUE(time.eq(kSpareTime).all().item<bool>());
}

TEST(MemoryTableRoom, GradientsEndIt) {
  MemoryTable table(2);
  append_one(table, 0);
  table.reserve(4);
  const Tensor x = at::ones({2, 1, 4}).requires_grad_(true);
  append_at(table, at::ones({2}, at::kLong), {{"x", x}});
  EXPECT_EQ(table.rows(), 4);
  EXPECT_EQ(table.room(), 0);
  table.column("x").sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones({2, 1, 4})));
  EXPECT_THROW(table.reserve(1), c10::Error);
}

}  // namespace
}  // namespace lapse
