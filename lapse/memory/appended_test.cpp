// Rows behind each sample's own, against a loop over rows; gradients of the block and of older rows.
#include "lapse/memory/appended.h"
#include "lapse/ops/aten.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace lapse {
namespace {

using at::Tensor;

/// For each row of the result its number among the old rows followed by the block's.
Tensor order_of(const std::vector<int64_t>& offsets, int64_t B, int64_t K) {
  std::vector<int64_t> order;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) order.push_back(i);
    for (int64_t t = 0; t < K; ++t) order.push_back(offsets[B] + b * K + t);
  }
  return at::tensor(order, at::kLong);
}

TEST(Appended, PutsEachSamplesRowsBehindItsOwn) {
  const std::vector<std::vector<int64_t>> all = {
      {0, 0}, {0, 3}, {0, 2, 2, 7}, {0, 900, 900, 2000}};  // the last in parallel
  for (const auto& offsets : all)
    for (const bool learns : {false, true}) {
      const bool old_learns = learns && offsets.back() > 0;
      const auto B = static_cast<int64_t>(offsets.size()) - 1, K = int64_t{5};
      Tensor old = at::randn({offsets.back(), 3, 2}, at::kDouble).set_requires_grad(old_learns);
      Tensor block = at::randn({K, B, 3, 2}, at::kDouble).requires_grad_(true);  // not contiguous when turned
      const Tensor got = appended(old, offsets, block.transpose(0, 1));
      const Tensor expected =
          lapse::cat({old, block.transpose(0, 1).flatten(0, 1)}).index_select(0, order_of(offsets, B, K));
      ASSERT_TRUE(got.equal(expected));
      const Tensor grad = at::randn({3, 2}, at::kDouble).expand_as(got);  // no memory of its own
      torch::autograd::backward({got}, {grad});
      const Tensor of_block = block.grad().clone(), of_old = old_learns ? old.grad().clone() : Tensor();
      block.mutable_grad().reset(), old.mutable_grad().reset();
      torch::autograd::backward({expected}, {grad});
      EXPECT_TRUE(of_block.equal(block.grad()));
      if (old_learns) {
        EXPECT_TRUE(of_old.equal(old.grad()));
      }
    }
}

}  // namespace
}  // namespace lapse
