// Operands of small matrix products: tiles copied into the layouts that libtorch's brgemm wants.
#pragma once

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cstring>

#include "lapse/ops/attention/tile.h"
#include "lapse/ops/dense/matrix_passes.h"

namespace lapse {

/// C [m][n] (+)= A [m][k] B [k][n]. bfloat16: pairs of B's lines are interleaved, [k / 2][n][2].
inline void multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, float* c, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, n, n, add, a, b, c, false);
}
inline void multiply(int64_t m, int64_t n, int64_t k, const at::BFloat16* a, int64_t lda, const at::BFloat16* b,
                     float* c, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, n, n, add, a, b, c, true);
}

/// Lines of x, `stride` elements apart: `count` of them, or those that `index` names (negative: none); what is missing
/// up to `rows` lines and `width` columns is zero. to: [rows][width].
template <class T>
void pack(const T* x, int64_t stride, const int64_t* index, int64_t count, int64_t columns, T* to, int64_t rows,
          int64_t width) {
  constexpr int64_t kAhead = 8;  // lines, which are too short for the hardware prefetcher
  const auto line_of = [&](int64_t i) { return i >= std::min(count, rows) ? -1 : index == nullptr ? i : index[i]; };
  for (int64_t i = 0; i < rows; ++i) {
    if (const int64_t next = line_of(i + kAhead); next >= 0)
      for (int64_t j = 0; j < columns; j += 64 / sizeof(T)) __builtin_prefetch(x + next * stride + j);
    const int64_t line = line_of(i);
    if (line >= 0) std::memcpy(to + i * width, x + line * stride, columns * sizeof(T));
    const int64_t from = line >= 0 ? columns : 0;
    if (from < width) std::memset(static_cast<void*>(to + i * width + from), 0, (width - from) * sizeof(T));
  }
}

/// x [rows][width] transposed, as a left operand: to [width][rows]. At most kTileRows rows.
inline void transposed(const float* x, int64_t rows, int64_t width, float* to) {
  transpose(x, width, to, rows, rows, width);
}
inline void transposed(const at::BFloat16* x, int64_t rows, int64_t width, at::BFloat16* to) {
  constexpr int64_t kColumns = 16;
  alignas(64) uint16_t pairs[kTileRows * kColumns];  // pairs of lines, which then move as one word
  const auto* from = reinterpret_cast<const uint16_t*>(x);
  for (int64_t j = 0; j < width; j += kColumns) {
    for (int64_t i = 0; i < rows; i += 2)
      join_lines(from + i * width + j, from + (i + 1) * width + j, pairs + i * kColumns, kColumns);
    transpose(reinterpret_cast<const float*>(pairs), kColumns, reinterpret_cast<float*>(to + j * rows), rows / 2,
              rows / 2, kColumns);
  }
}

/// x [rows][width] transposed, as a right operand [width][rows].
inline void transposed_right(const float* x, int64_t rows, int64_t width, float* to) { transposed(x, rows, width, to); }
inline void transposed_right(const at::BFloat16* x, int64_t rows, int64_t width, at::BFloat16* to) {
  transpose(reinterpret_cast<const float*>(x), width / 2, reinterpret_cast<float*>(to), rows, rows, width / 2);
}

/// x [rows][width] as a right operand; for float32 it is one already.
inline const float* right(const float* x, int64_t, int64_t, float*) { return x; }
inline const at::BFloat16* right(const at::BFloat16* x, int64_t rows, int64_t width, at::BFloat16* to) {
  const auto* from = reinterpret_cast<const uint16_t*>(x);
  for (int64_t i = 0; i < rows; i += 2)
    join_lines(from + i * width, from + (i + 1) * width, reinterpret_cast<uint16_t*>(to) + i * width, width);
  return to;
}

/// Results x [rows][columns] as a left and as a right operand; `to` is not used for float32.
inline const float* rounded(const float* x, int64_t, float*) { return x; }
inline const at::BFloat16* rounded(const float* x, int64_t n, at::BFloat16* to) {
  to_bfloat16(x, reinterpret_cast<uint16_t*>(to), n);
  return to;
}
inline const float* rounded_right(const float* x, int64_t, int64_t, float*) { return x; }
inline const at::BFloat16* rounded_right(const float* x, int64_t rows, int64_t columns, at::BFloat16* to) {
  to_pairs(x, reinterpret_cast<uint16_t*>(to), rows, columns);
  return to;
}

inline float dot_of(const float* x, const float* y, int64_t n) { return dot(x, y, n); }
inline float dot_of(const at::BFloat16* x, const at::BFloat16* y, int64_t n) {
  return dot(reinterpret_cast<const uint16_t*>(x), reinterpret_cast<const uint16_t*>(y), n);
}

/// matrix_passes.h's store_lines with one factor for all lines, and for tensors' bfloat16.
inline void store_lines(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                        const Lines<at::BFloat16>& lines) {
  store_lines(x, width, count, n, factor, each,
              Lines<uint16_t>{reinterpret_cast<uint16_t*>(lines.to), lines.stride, lines.index});
}
template <class T>
void store_lines(const float* x, int64_t width, int64_t count, int64_t n, float factor, const Lines<T>& lines) {
  store_lines(x, width, count, n, &factor, 0, lines);
}

}  // namespace lapse
