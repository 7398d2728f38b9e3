#include "lapse/ops/dense/matrix_passes.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/parallel/instruction_set_testing.h"

namespace lapse {
namespace {

using at::Tensor;

TEST(MatrixPasses, TransposesEverySizeOfFours) {
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int rows : {4, 12, 16, 20, 32, 64})
      for (int columns : {4, 8, 16, 28, 48, 64}) {
        const Tensor x = at::arange(float(rows * (columns + 3))).view({rows, columns + 3});
        Tensor y = at::full({columns, rows + 5}, -1.f);
        transpose(x.const_data_ptr<float>(), columns + 3, y.mutable_data_ptr<float>(), rows + 5, rows, columns);
        EXPECT_TRUE(y.narrow(1, 0, rows).equal(x.narrow(1, 0, columns).t()))
            << rows << " x " << columns << ", " << target;
        EXPECT_TRUE(y.narrow(1, rows, 5).eq(-1).all().item<bool>()) << "written beyond the end";
      }
  }
}

TEST(MatrixPasses, RoundsToTheNearestBfloat16) {
  at::manual_seed(7);
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int64_t n : {1, 15, 16, 31, 32, 33, 2 * 37 * 16}) {
      const Tensor x = at::randn({n});
      if (n > 4) x[1] = INFINITY, x[2] = -INFINITY, x[3] = 1 + 0x1p-8F, x[4] = 1 + 3 * 0x1p-8F;  // ties
      Tensor y = at::full({n + 1}, 7.f, at::kBFloat16);
      to_bfloat16(x.const_data_ptr<float>(), reinterpret_cast<uint16_t*>(y.data_ptr<at::BFloat16>()), n);
      EXPECT_TRUE(y.narrow(0, 0, n).equal(x.to(at::kBFloat16))) << n << ", " << target;
      EXPECT_EQ(y[n].item<float>(), 7) << "written beyond the end";
    }
    const float nan = NAN;
    at::BFloat16 rounded = 0;
    to_bfloat16(&nan, reinterpret_cast<uint16_t*>(&rounded), 1);
    EXPECT_TRUE(std::isnan(static_cast<float>(rounded)));
  }
}

TEST(MatrixPasses, JoinsLinesInPairs) {
  at::manual_seed(9);
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    const Tensor x = at::randn({6, 48});
    Tensor y = at::empty({3, 48, 2}, at::kBFloat16);
    auto* to = reinterpret_cast<uint16_t*>(y.data_ptr<at::BFloat16>());
    to_pairs(x.const_data_ptr<float>(), to, 6, 48);
    EXPECT_TRUE(y.equal(x.to(at::kBFloat16).view({3, 2, 48}).transpose(1, 2))) << target;
  }
}

TEST(MatrixPasses, StoresScaledLinesOfAnyLengthWhereTheyBelong) {
  at::manual_seed(8);
  const float factors[] = {0.3F, 0, -2, 0.7F};
  const int64_t index[] = {3, 0, -1, 1};  // line 2 goes nowhere, so that place 2 keeps what it has
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int64_t n : {1, 16, 37}) {
      Tensor x = at::randn({4, n + 3}), y = at::full({4, n + 1}, 7.f);
      Tensor z = at::full({4, n + 1}, 7.f, at::kBFloat16), expected = y.clone();
      expected[3].narrow(0, 0, n) = x[0].narrow(0, 0, n) * factors[0];
      expected[0].narrow(0, 0, n) = 0;
      expected[1].narrow(0, 0, n) = x[3].narrow(0, 0, n) * factors[3];
      x[1].fill_(NAN);  // a factor of 0 gives 0
      const auto* from = x.const_data_ptr<float>();
      store_lines(from, n + 3, 4, n, factors, 1, Lines<float>{y.mutable_data_ptr<float>(), n + 1, index});
      auto* rounded = reinterpret_cast<uint16_t*>(z.data_ptr<at::BFloat16>());
      store_lines(from, n + 3, 4, n, factors, 1, Lines<uint16_t>{rounded, n + 1, index});
      EXPECT_TRUE(y.equal(expected)) << n << ", " << target;
      EXPECT_TRUE(z.equal(expected.to(at::kBFloat16))) << n << ", " << target;
    }
  }
}

}  // namespace
}  // namespace lapse
