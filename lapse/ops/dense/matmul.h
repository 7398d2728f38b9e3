// Products of tall matrices in memory, by libtorch's brgemm on every core. float32 in and out; computed in T: float, or
// at::BFloat16 with float32 sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lapse {

constexpr int64_t kPanel = 64;   ///< rows and columns of a tile of a result
constexpr int64_t kDepth = 256;  ///< how much of the inner dimension a tile takes at once

/// A right operand [k][n] in panels of 64 columns; k is filled up to a multiple of 64, n of 64, with zeros. Copied, or
/// where it lies in memory as brgemm reads it, the whole blocks of 64 lines are read there.
template <class T>
class Panels {
 public:
  /// x [k][n], or with `transposed` x [n][k]; lines are `stride` apart. x must outlive this.
  Panels(const float* x, int64_t stride, int64_t k, int64_t n, bool transposed);
  int64_t depth() const { return k_; }
  int64_t columns() const { return n_; }
  int64_t count() const { return (n_ + kPanel - 1) / kPanel; }

  /// Panel j from line r on: the first element, the stride of lines, and how many there are up to at most kDepth.
  struct Piece {
    const T* data;
    int64_t stride, lines;
  };
  Piece at(int64_t j, int64_t r) const;

 private:
  int64_t k_, n_;         // k_: filled up
  int64_t in_place_ = 0;  // lines that are read from x_
  const float* x_;
  int64_t stride_;
  at::Tensor data_;  // the others: [count()][k_ - in_place_][64]
};

/// A left operand: x [m][k] as it lies in memory, or the transposed x [k][m]. In blocks of kDepth columns where it is
/// not read directly.
template <class T>
class Left {
 public:
  static Left plain(const float* x, int64_t m, int64_t k) { return {x, m, k, {}}; }
  static Left transposed(const float* x, int64_t k, int64_t m);

  /// 64 lines from row i on, those after `count` zero, for the inner dimension filled up to `depth`: the first element,
  /// the stride of lines and that of blocks. `room`: 64 x depth elements.
  struct Tile {
    const T* data;
    int64_t stride, block;
  };
  Tile tile(int64_t i, int64_t count, int64_t depth, T* room, float* block) const;

 private:
  Left(const float* x, int64_t m, int64_t k, at::Tensor packed) : x_(x), m_(m), k_(k), packed_(std::move(packed)) {}
  const float* x_;
  int64_t m_, k_;
  at::Tensor packed_;  // [blocks][m, filled up][kDepth]
};

/// Some rows of a matrix.
struct RowRange {
  int64_t begin, end;
};

/// out [m][n] (+)= left right for the given rows. Then bias [n] is added, unless null, and relu applied.
template <class T>
void multiply(const Left<T>& left, const std::vector<RowRange>& rows, const Panels<T>& right, float* out, bool add,
              const float* bias = nullptr, bool relu = false);

/// sums [n] of x [m][n] over m.
void column_sums(const float* x, int64_t m, int64_t n, float* sums);

}  // namespace lapse
