// Rows cut into pieces that do not depend on the number of threads, so that what is summed over them does not either.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lapse/ops/parallel/parallel.h"

namespace lapse {

constexpr int64_t kRowPieces = 64;

/// Calls f(piece, first row, rows) for pieces of the rows of n features, kRowPieces at most; on this thread alone if
/// there is little to do.
template <class F>
void for_each_piece_of_rows(int64_t rows, int64_t n, const F& f) {
  const int64_t pieces = std::min(rows, kRowPieces);
  const auto piece = [&](int64_t i) {
    const int64_t begin = rows * i / pieces, end = rows * (i + 1) / pieces;
    f(i, begin, end - begin);
  };
  if (rows * n > 1 << 14) return for_each_task(pieces, piece);
  for (int64_t i = 0; i < pieces; ++i) piece(i);
}

}  // namespace lapse
