// Products of tall matrices in memory, by libtorch's brgemm on every core. float32 in and out; computed in T: float, or
// at::BFloat16 with float32 sums. No dimension is 0. No sum depends on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "lapse/ops/dense/layer_passes.h"
#include "lapse/ops/parallel/scratch.h"

namespace lapse {

constexpr int64_t kPanel = 64;   ///< rows and columns of a tile of a result
constexpr int64_t kDepth = 512;  ///< how much of the inner dimension a tile takes at once

/// A right operand [k][n] in panels of 64 columns; k is filled up to a multiple of 64, n of 64, with zeros. Copied,
/// since lines far apart fall on the same sets of the cache.
template <class T>
class Panels {
 public:
  /// x [k][n], or with `transposed` x [n][k].
  Panels(const float* x, int64_t k, int64_t n, bool transposed);
  int64_t depth() const { return k_; }  ///< not filled up
  int64_t columns() const { return n_; }
  int64_t count() const { return (n_ + kPanel - 1) / kPanel; }
  /// Panel j from line r on, lines of 64 elements.
  const T* at(int64_t j, int64_t r) const {
    const int64_t lines = (k_ + kPanel - 1) / kPanel * kPanel;
    return data_.template const_data_ptr<T>() + (j * lines + r) * kPanel;
  }

 private:
  int64_t k_, n_;
  at::Tensor data_;  // [count()][k, filled up][64]
};

/// A left operand: x [m][k] as it lies in memory, or the transposed x [k][m]. In blocks of kDepth columns where it is
/// not read directly.
template <class T>
class Left {
 public:
  static Left plain(const float* x, int64_t m, int64_t k) { return {x, m, k, {}}; }
  static Left transposed(const float* x, int64_t k, int64_t m);

  /// Lines from row i on, `count` and after them zeros up to a multiple of 16: the first element, the stride of lines
  /// and that of blocks. Zeros fill the inner dimension up to a multiple of 64, but not where float32 is read as it
  /// lies; there only k elements may be read. `scratch` gives the room for the rest.
  struct Tile {
    const T* data;
    int64_t stride, block;
    const T* at(int64_t r) const { return data + r / kDepth * block; }  ///< r: a multiple of kDepth
  };
  Tile tile(int64_t i, int64_t count, Scratch& scratch) const;

 private:
  Left(const float* x, int64_t m, int64_t k, at::Tensor packed) : x_(x), m_(m), k_(k), packed_(std::move(packed)) {}
  const float* x_;
  int64_t m_, k_;
  at::Tensor packed_;  // [blocks][m, filled up][columns of a block]
};

/// Some rows of a matrix.
struct RowRange {
  int64_t begin, end;
};

/// What follows a product, in this order.
struct AfterProduct {
  const float* bias = nullptr;  ///< [n], or null
  bool relu = false;
  std::optional<DropoutDraw> dropout = {};
};

/// out [m][n] (+)= left right for the given rows, and then what follows.
template <class T>
void multiply(const Left<T>& left, const std::vector<RowRange>& rows, const Panels<T>& right, float* out, bool add,
              const AfterProduct& after = {});

/// out [m][n] = left right, for a transposed left operand and a right one x [k][n] of many lines: each part of a panel
/// is packed just before its use, and so still in the cache. To copy all of x first would not pay, with only m rows to
/// multiply.
template <class T>
void multiply_long(const Left<T>& left, int64_t m, const float* x, int64_t k, int64_t n, float* out);

/// sums [n] of x [m][n] over m.
void column_sums(const float* x, int64_t m, int64_t n, float* sums);

}  // namespace lapse
