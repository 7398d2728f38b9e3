#include "lapse/ops/dense/matmul.h"

#include <c10/util/SmallVector.h>

#include <cstring>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/panel.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/parallel/scratch.h"

namespace lapse {
namespace {

int64_t filled(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

// A tile of fewer rows has a multiple of so many, so that brgemm makes few kernels.
constexpr int64_t kRowStep = 16;
int64_t height_of(int64_t rows) { return (rows + kRowStep - 1) / kRowStep * kRowStep; }

constexpr int64_t kCached = 1 << 20;  // bytes of a right operand that a core's cache holds

at::Tensor buffer(float, int64_t n) { return empty_rows({n}); }
at::Tensor buffer(at::BFloat16, int64_t n) { return empty_rows({n}, at::kBFloat16); }

/// 64 x 64 of x, zeros beyond `rows` and `columns`.
void copy_block(const float* x, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t i = 0; i < kPanel; ++i, to += kPanel) {
    const int64_t n = i < rows ? columns : 0;
    if (n > 0) std::memcpy(to, x + i * stride, n * sizeof(float));
    std::fill(to + n, to + kPanel, 0.f);
  }
}

/// A block [64][64] as a left operand's, lines `stride` apart.
void store_left(const float* block, float* to, int64_t stride) {
  for (int64_t i = 0; i < kPanel; ++i) std::memcpy(to + i * stride, block + i * kPanel, kPanel * sizeof(float));
}
void store_left(const float* block, at::BFloat16* to, int64_t stride) {
  for (int64_t i = 0; i < kPanel; ++i)
    to_bfloat16(block + i * kPanel, reinterpret_cast<uint16_t*>(to + i * stride), kPanel);
}

/// The same of the block transposed, whose lines are `from_stride` apart; `room`: a block.
void store_left_turned(const float* block, int64_t from_stride, float* to, int64_t stride, float*) {
  transpose(block, from_stride, to, stride, kPanel, kPanel);
}
void store_left_turned(const float* block, int64_t from_stride, at::BFloat16* to, int64_t stride, float* room) {
  transpose(block, from_stride, room, kPanel, kPanel, kPanel);
  store_left(room, to, stride);
}

/// 64 x 64 of x as a right operand's, zeros beyond `lines` and `columns`; `room`: a block.
void pack_right(const float* x, int64_t stride, int64_t lines, int64_t columns, float* to, float*) {
  pack<float>(x, stride, nullptr, lines, columns, to, kPanel, kPanel);
}
void pack_right(const float* x, int64_t stride, int64_t lines, int64_t columns, at::BFloat16* to, float* room) {
  pack<float>(x, stride, nullptr, lines, columns, room, kPanel, kPanel);
  to_pairs(room, reinterpret_cast<uint16_t*>(to), kPanel, kPanel);
}

/// The same of a whole block transposed.
void store_right_turned(const float* block, int64_t from_stride, float* to, float*) {
  transpose(block, from_stride, to, kPanel, kPanel, kPanel);
}
void store_right_turned(const float* block, int64_t from_stride, at::BFloat16* to, float* room) {
  transpose(block, from_stride, room, kPanel, kPanel, kPanel);
  to_pairs(room, reinterpret_cast<uint16_t*>(to), kPanel, kPanel);
}

/// Tile [rows][columns] of a result, complete or one piece of its sum, goes from `tile`, 64 columns wide, to `out`.
void store_tile(const float* tile, int64_t rows, int64_t columns, bool add, float* out, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    if (add)
      add_to(out + i * stride, tile + i * kPanel, columns);
    else
      std::memcpy(out + i * stride, tile + i * kPanel, columns * sizeof(float));
  }
}

/// Up to 64 rows of a left operand, and room for a tile of their results that cannot be computed in its place.
template <class T>
struct RowTile {
  int64_t row, count;
  typename Left<T>::Tile operand;
  float* result;
  bool direct(int64_t width) const { return count == height_of(count) && width == kPanel; }
};

template <class T>
void multiply_tile(int64_t rows, int64_t depth, const T* left, int64_t stride, const T* right, float* c, int64_t ldc,
                   bool add) {
  at::native::cpublas::brgemm(rows, kPanel, depth, stride, kPanel, ldc, add, left, right, c,
                              std::is_same_v<T, at::BFloat16>);
}

struct Blocks {
  float *block, *turned;
};
Blocks blocks_of(Scratch& scratch) {
  return {scratch.take<float>(kPanel * kPanel), scratch.take<float>(kPanel * kPanel)};
}

}  // namespace

template <class T>
Panels<T>::Panels(const float* x, int64_t stride, int64_t k, int64_t n, bool transposed) : k_(filled(k)), n_(n) {
  const int64_t depth = k_ / kPanel;
  data_ = buffer(T(), k_ * filled(n));
  T* to = data_.template mutable_data_ptr<T>();
  for_each_task(count() * depth, [&](int64_t task) {
    const int64_t j = task / depth, r = task % depth;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const auto [block, turned] = blocks_of(scratch);
    const int64_t columns = std::min(kPanel, n - j * kPanel), lines = std::min(kPanel, k - r * kPanel);
    T* panel = to + (j * k_ + r * kPanel) * kPanel;
    if (!transposed) return pack_right(x + r * kPanel * stride + j * kPanel, stride, lines, columns, panel, block);
    const bool whole = columns == kPanel && lines == kPanel;
    const float* from = x + j * kPanel * stride + r * kPanel;
    if (!whole) copy_block(from, stride, columns, lines, turned);
    store_right_turned(whole ? from : turned, whole ? stride : kPanel, panel, block);
  });
}

template <class T>
Left<T> Left<T>::transposed(const float* x, int64_t k, int64_t m) {
  const int64_t lines_m = filled(m), depth = filled(k) / kPanel;
  const at::Tensor packed = buffer(T(), lines_m * ((filled(k) + kDepth - 1) / kDepth * kDepth));
  T* to = packed.template mutable_data_ptr<T>();
  for_each_task(depth, [&](int64_t r) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const auto [block, turned] = blocks_of(scratch);
    const int64_t at = r * kPanel;
    for (int64_t i = 0; i < m; i += kPanel) {
      const float* from = x + at * m + i;
      const int64_t lines = std::min(kPanel, k - at), columns = std::min(kPanel, m - i);
      const bool direct = lines == kPanel && columns == kPanel;
      if (!direct) copy_block(from, m, lines, columns, block);
      store_left_turned(direct ? from : block, direct ? m : kPanel,
                        to + at / kDepth * lines_m * kDepth + i * kDepth + at % kDepth, kDepth, turned);
    }
  });
  return {x, m, k, packed};
}

template <class T>
typename Left<T>::Tile Left<T>::tile(int64_t i, int64_t count, int64_t depth, T* room, float* block) const {
  if (packed_.defined()) return {packed_.template const_data_ptr<T>() + i * kDepth, kDepth, filled(m_) * kDepth};
  if constexpr (std::is_same_v<T, float>)
    if (count == height_of(count) && k_ == depth) return {x_ + i * k_, k_, kDepth};
  for (int64_t r = 0; r < depth; r += kPanel) {
    copy_block(x_ + i * k_ + r, k_, count, std::min(kPanel, k_ - r), block);
    store_left(block, room + r, depth);
  }
  return {room, depth, kDepth};
}

template <class T>
void multiply(const Left<T>& left, const std::vector<RowRange>& rows, const Panels<T>& right, float* out, bool add,
              const float* bias, bool relu) {
  struct Piece {
    int64_t row, count;
  };
  std::vector<Piece> pieces;
  for (const auto& range : rows)
    for (int64_t i = range.begin; i < range.end; i += kPanel) pieces.push_back({i, std::min(kPanel, range.end - i)});
  const auto n = static_cast<int64_t>(pieces.size());
  const int64_t depth = right.depth(), columns = right.columns();
  // Panels that leave the cache before they are needed again are used for several pieces at a time. No sum depends on
  // how threads share out the work.
  const bool large = depth * columns * static_cast<int64_t>(sizeof(T)) > kCached;
  const int64_t most = large ? std::clamp<int64_t>(n / (2 * at::get_num_threads()), 1, 4) : 1;
  const int64_t groups = (n + most - 1) / most;
  // Enough tasks for all cores also where there are few rows.
  const int64_t parts = n == 0 ? 1 : std::clamp<int64_t>(16 / groups, 1, right.count());
  for_each_task(groups * parts, [&](int64_t task) {
    const int64_t part = task % parts, begin = n * (task / parts) / groups, end = n * (task / parts + 1) / groups;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    float* block = scratch.take<float>(kPanel * kPanel);
    c10::SmallVector<RowTile<T>, 4> tiles;
    for (int64_t i = begin; i < end; ++i) {
      const auto [row, count] = pieces[i];
      const auto operand = left.tile(row, count, depth, scratch.take<T>(kPanel * depth), block);
      tiles.push_back({row, count, operand, scratch.take<float>(kPanel * kPanel)});
    }
    for (int64_t j = right.count() * part / parts; j < right.count() * (part + 1) / parts; ++j) {
      const int64_t width = std::min(kPanel, columns - j * kPanel);
      const auto to = [&](const RowTile<T>& tile) { return out + tile.row * columns + j * kPanel; };
      for (int64_t r = 0; r < depth; r += kDepth)
        for (const auto& tile : tiles) {
          const bool direct = tile.direct(width);
          multiply_tile(height_of(tile.count), std::min(kDepth, depth - r),
                        tile.operand.data + r / kDepth * tile.operand.block, tile.operand.stride, right.at(j, r),
                        direct ? to(tile) : tile.result, direct ? columns : kPanel, r > 0 || (add && direct));
        }
      for (const auto& tile : tiles) {
        if (!tile.direct(width)) store_tile(tile.result, tile.count, width, add, to(tile), columns);
        if (bias != nullptr || relu)
          add_bias(to(tile), columns, tile.count, width, bias == nullptr ? bias : bias + j * kPanel, relu);
      }
    }
  });
}

// Threads share out the panels, and where there are few of them the rows: no sum depends on it.
template <class T>
void multiply_long(const Left<T>& left, int64_t m, const float* x, int64_t k, int64_t n, float* out) {
  const int64_t threads = at::get_num_threads(), panels = (n + kPanel - 1) / kPanel, tiles = (m + kPanel - 1) / kPanel;
  const int64_t groups = std::min(panels, threads == 1 ? 1 : 2 * threads);
  const int64_t parts = std::clamp<int64_t>(threads / groups, 1, tiles);
  for_each_task(groups * parts, [&](int64_t task) {
    const int64_t group = task / parts, part = task % parts;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    T* piece = scratch.take<T>(kDepth * kPanel);
    const auto [block, result] = blocks_of(scratch);
    for (int64_t r = 0; r < k; r += kDepth)
      for (int64_t j = panels * group / groups; j < panels * (group + 1) / groups; ++j) {
        const int64_t depth = std::min(kDepth, filled(k) - r), width = std::min(kPanel, n - j * kPanel);
        for (int64_t l = 0; l < depth; l += kPanel)
          pack_right(x + (r + l) * n + j * kPanel, n, std::min(kPanel, k - r - l), width, piece + l * kPanel, block);
        for (int64_t i = tiles * part / parts; i < tiles * (part + 1) / parts; ++i) {
          const int64_t rows = std::min(kPanel, m - i * kPanel);
          const auto tile = left.tile(i * kPanel, rows, filled(k), nullptr, nullptr);
          float* at = out + i * kPanel * n + j * kPanel;
          const bool direct = rows == kPanel && width == kPanel;
          multiply_tile(kPanel, depth, tile.data + r / kDepth * tile.block, tile.stride, piece, direct ? at : result,
                        direct ? n : kPanel, direct && r > 0);
          if (!direct) store_tile(result, rows, width, r > 0, at, n);
        }
      }
  });
}

void column_sums(const float* x, int64_t m, int64_t n, float* sums) {
  constexpr int64_t kChunks = 16;  // whatever the number of threads
  std::vector<float> parts(kChunks * n, 0.f);
  for_each_task(kChunks, [&](int64_t c) {
    for (int64_t i = m * c / kChunks; i < m * (c + 1) / kChunks; ++i) add_to(parts.data() + c * n, x + i * n, n);
  });
  std::fill_n(sums, n, 0.f);
  for (int64_t c = 0; c < kChunks; ++c) add_to(sums, parts.data() + c * n, n);
}

template class Panels<float>;
template class Panels<at::BFloat16>;
template class Left<float>;
template class Left<at::BFloat16>;
template void multiply(const Left<float>&, const std::vector<RowRange>&, const Panels<float>&, float*, bool,
                       const float*, bool);
template void multiply(const Left<at::BFloat16>&, const std::vector<RowRange>&, const Panels<at::BFloat16>&, float*,
                       bool, const float*, bool);
template void multiply_long(const Left<float>&, int64_t, const float*, int64_t, int64_t, float*);
template void multiply_long(const Left<at::BFloat16>&, int64_t, const float*, int64_t, int64_t, float*);

}  // namespace lapse
