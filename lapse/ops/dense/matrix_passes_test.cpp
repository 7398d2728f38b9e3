#include "lapse/ops/dense/matrix_passes.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

/// Products of k normal values against those in float64; the sum of k products, each rounded, is off by sqrt(k) eps of
/// its deviation sqrt(k) at most (linear_test.cpp).
void expect_products(const Tensor& y, const Tensor& x, const Tensor& w, const std::string& text) {
  const double k = static_cast<double>(x.size(1)), tolerance = (2 + std::sqrt(k)) * std::ldexp(1, -23);
  const Tensor exact = at::mm(x.to(at::kDouble), w.to(at::kDouble).t()) / std::sqrt(k);
  const Tensor error = (y.to(at::kDouble) / std::sqrt(k) - exact).abs().max();
  EXPECT_LE(error.item<double>(), tolerance * std::max(1., exact.abs().max().item<double>())) << text;
}

// Of four lines at a time and of single ones, whole vectors, pairs of vectors and what is left of them.
TEST(MatrixPasses, MultipliesLinesOfAnyLength) {
  at::manual_seed(10);
  const int64_t n = 5;
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int64_t m : {1, 3, 4, 5, 9})
      for (int64_t k : {1, 15, 16, 31, 32, 64, 97, 128, 131, 160, 512, 1027}) {
        const std::string text = fmt::format("{} x {}, target {}", m, k, target);
        const Tensor x = at::randn({m, k}), w = at::randn({n, k}), rounded = w.to(at::kBFloat16);
        const Tensor narrow = x.to(at::kBFloat16), read = reads_narrow() ? narrow : x;
        const auto bits = [](const Tensor& t) { return static_cast<const uint16_t*>(t.const_data_ptr()); };
        Tensor y = at::full({m, n + 2}, 7.f), z = y.clone();
        multiply_lines(x.const_data_ptr<float>(), w.const_data_ptr<float>(), m, n, k, y.mutable_data_ptr<float>(),
                       n + 2);
        multiply_lines(x.const_data_ptr<float>(), reads_narrow() ? bits(narrow) : nullptr, bits(rounded), m, n, k,
                       z.mutable_data_ptr<float>(), n + 2);
        expect_products(y.narrow(1, 0, n), x, w, text);
        expect_products(z.narrow(1, 0, n), read, rounded, text + ", bfloat16");
        for (const Tensor& all : {y, z}) EXPECT_TRUE(all.narrow(1, n, 2).eq(7).all().item<bool>()) << text;
      }
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

TEST(MatrixPasses, StoresLinesThatItFetchesAhead) {
  std::vector<int64_t> index(37);
  for (int64_t i = 0; i < 37; ++i) index[i] = i % 5 == 2 ? -1 : 36 - i;
  const float factor = 0.5F;
  const Tensor x = at::randn({37, 80});
  Tensor y = at::full({37, 80}, 7.f), expected = y.clone();
  for (int64_t i = 0; i < 37; ++i)
    if (index[i] >= 0) expected[index[i]] = x[i] * factor;
  store_lines(x.const_data_ptr<float>(), 80, 37, 80, &factor, 0,
              Lines<float>{y.mutable_data_ptr<float>(), 80, index.data()});
  EXPECT_TRUE(y.equal(expected));
}

}  // namespace
}  // namespace lapse
