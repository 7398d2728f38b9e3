// ChosenRows that are taken and put back, against libtorch's operators; which blocks count as padded.
#include "lapse/nn/padding.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;
using Runs = std::vector<std::pair<int64_t, int64_t>>;

Tensor longs(const std::vector<int64_t>& all) { return at::tensor(all, at::kLong); }

Tensor numbers_of(const Runs& runs) {
  std::vector<int64_t> all;
  for (const auto& [begin, end] : runs)
    for (int64_t i = begin; i < end; ++i) all.push_back(i);
  return longs(all);
}

/// The gradient of x, given that of y.
Tensor gradient(const Tensor& y, Tensor& x, const Tensor& of_y) {
  torch::autograd::backward({y}, {of_y});
  const Tensor all = x.grad().clone();
  x.mutable_grad().reset();
  return all;
}

TEST(ChosenRows, AreTakenAndPutBack) {
  const std::vector<std::pair<Runs, int64_t>> cases = {
      {{{0, 5}}, 5},                          // all
      {{}, 4},                                // none
      {{{1, 1}, {3, 3}}, 4},                  // none
      {{{0, 0}, {2, 3}, {3, 3}, {4, 7}}, 9},  // zeros before, between and behind
      {{{0, 2}, {2, 4}, {6, 7}}, 7},
      {{{100, 900}, {1000, 1007}, {1500, 4000}}, 4001},  // in parallel
  };
  for (const auto& [runs, n] : cases)
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const ChosenRows rows(runs, n);
      const Tensor numbers = numbers_of(runs);
      const int64_t m = numbers.numel();
      Tensor x = at::randn({3, n, 2}, type).requires_grad_(true);  // not contiguous when turned
      const Tensor some = rows.of(x.transpose(0, 1)), expected = x.transpose(0, 1).index_select(0, numbers);
      ASSERT_TRUE(some.equal(expected));
      const Tensor of_some = at::randn({3, 2}, type).expand({m, 3, 2});  // no memory of its own
      EXPECT_TRUE(gradient(some, x, of_some).equal(gradient(expected, x, of_some)));

      Tensor y = at::randn({m, 2, 2}, type).requires_grad_(true);
      const Tensor all = rows.among_zeros(y), put = at::zeros({n, 2, 2}, type).index_copy(0, numbers, y);
      ASSERT_TRUE(all.equal(put));
      const Tensor of_all = at::randn({n, 2}, type).unsqueeze(2).expand({n, 2, 2});
      EXPECT_TRUE(gradient(all, y, of_all).equal(gradient(put, y, of_all)));

      EXPECT_TRUE(rows.numbers(numbers).equal(at::arange(m, at::kLong)));
      EXPECT_THROW(rows.of(at::zeros({n + 1})), c10::Error);
      EXPECT_THROW(rows.among_zeros(at::zeros({m + 1})), c10::Error);
    }
}

TEST(ChosenRows, AreAllByDefault) {
  const Tensor x = at::randn({3, 2});
  EXPECT_TRUE(ChosenRows().of(x).is_same(x));
  EXPECT_TRUE(ChosenRows().among_zeros(x).is_same(x));
}

TEST(Padding, IsRemovedAndRestored) {
  const Padding padding(longs({3, 0, 5, 1}), 5);
  ASSERT_TRUE(static_cast<bool>(padding));
  const Tensor x = at::arange(40).view({4, 5, 2}) + 1;
  const Tensor tokens = longs({0, 1, 2, 10, 11, 12, 13, 14, 15});
  EXPECT_TRUE(padding.removed(x).equal(x.flatten(0, 1).index_select(0, tokens).unsqueeze(0)));
  EXPECT_TRUE(padding.places(tokens).equal(at::arange(9)));
  EXPECT_FALSE(padding.places({}).defined());
  const Tensor back = padding.restored(padding.removed(x));
  EXPECT_TRUE(padding.removed(back).equal(padding.removed(x)));
  EXPECT_EQ(back.count_nonzero().item<int64_t>(), 18);
}

TEST(Padding, IsNoneWhereThereIsLittle) {
  for (const auto& [lengths, K] :
       std::vector<std::pair<Tensor, int64_t>>{{{}, 5},                           // all are tokens
                                               {longs({0, 0}), 5},                // none is
                                               {longs({1, 0, 0}), 1},             // token by token
                                               {longs({16, 13, 16, 13}), 16}}) {  // less than an eighth
    const Padding padding(lengths, K);
    EXPECT_FALSE(static_cast<bool>(padding));
    const Tensor x = at::randn({3, K, 2});
    EXPECT_TRUE(padding.removed(x).is_same(x));
    EXPECT_TRUE(padding.restored(x).is_same(x));
  }
  EXPECT_TRUE(static_cast<bool>(Padding(longs({16, 12, 16, 12}), 16)));
  for (const int64_t wrong : {-1, 6}) EXPECT_THROW(Padding(longs({2, wrong}), 5), c10::Error);
}

TEST(Padding, HasRowsBehindEachSamplesOlderOnes) {
  MemoryTable table(2);
  const auto more = [](int64_t from, int64_t K) {
    const Tensor time = at::arange(from, from + K).repeat({2, 1});
    return Columns{{"time", time}, {"kind", at::zeros({2, K}, at::kByte)}};
  };
  table.append(more(0, 2));
  table.keep(longs({1, 1, 0, 1}).to(at::kBool));
  table.append(more(2, 3));
  const Padding padding(longs({1, 2}), 3);
  EXPECT_EQ(padding.of(0), 2);
  EXPECT_TRUE(padding.rows(table).of(table.time()).equal(longs({0, 1, 2, 1, 2, 3})));
}

}  // namespace
}  // namespace lapse
