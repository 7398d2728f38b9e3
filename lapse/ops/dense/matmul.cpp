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

/// A tile of fewer than 64 rows or columns has a multiple of 16, so that brgemm makes few kernels.
int64_t side_of(int64_t n) { return (n + 15) / 16 * 16; }

constexpr int64_t kCached = 1 << 20;   // bytes of a right operand that a core's cache holds
constexpr int64_t kDeepest = 1 << 14;  // of an inner dimension: the left operand's tiles must be in the cache too

at::Tensor buffer(float, int64_t n) { return empty_rows({n}); }
at::Tensor buffer(at::BFloat16, int64_t n) { return empty_rows({n}, at::kBFloat16); }

/// 64 x 64 of x, zeros beyond `rows` and `columns`.
void copy_block(const float* x, int64_t stride, int64_t rows, int64_t columns, float* to) {
  pack<float>(x, stride, nullptr, rows, columns, to, kPanel, kPanel);
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
  copy_block(x, stride, lines, columns, to);
}
void pack_right(const float* x, int64_t stride, int64_t lines, int64_t columns, at::BFloat16* to, float* room) {
  copy_block(x, stride, lines, columns, room);
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

/// Tile [rows][columns] from `tile`, 64 columns wide, is copied, or with `add` added, to `out`.
void store_tile(const float* tile, int64_t rows, int64_t columns, bool add, float* out, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    if (add)
      add_to(out + i * stride, tile + i * kPanel, columns);
    else
      std::memcpy(out + i * stride, tile + i * kPanel, columns * sizeof(float));
  }
}

/// Whether brgemm writes a tile of so many rows and columns where it belongs, instead of a whole one elsewhere.
bool direct(int64_t rows, int64_t columns) { return rows == side_of(rows) && columns == side_of(columns); }

/// Up to 64 rows of a left operand, and room for a tile of the result that cannot be computed in its place.
template <class T>
struct RowTile {
  int64_t row, count;
  typename Left<T>::Tile operand;
  float* result;
};

template <class T>
void multiply_tile(int64_t rows, int64_t columns, int64_t depth, const T* left, int64_t stride, const T* right,
                   float* c, int64_t ldc, bool add) {
  at::native::cpublas::brgemm(side_of(rows), side_of(columns), depth, stride, kPanel, ldc, add, left, right, c,
                              std::is_same_v<T, at::BFloat16>);
}

float* block_of(Scratch& scratch) { return scratch.take<float>(kPanel * kPanel); }

/// Of a tile at x, whose first element is in `row` and `column` of a matrix with so many columns.
void finish(const AfterProduct& after, float* x, int64_t columns, int64_t row, int64_t rows, int64_t column,
            int64_t width) {
  const auto& [bias, relu, dropout] = after;
  if (bias != nullptr || relu) add_bias(x, columns, rows, width, bias == nullptr ? bias : bias + column, relu);
  if (!dropout) return;
  for (int64_t i = 0; i < rows; ++i) {
    float* line = x + i * columns;
    dropout_pass(*dropout, line, (row + i) * columns + column, width, line);
  }
}

}  // namespace

template <class T>
Panels<T>::Panels(const float* x, int64_t k, int64_t n, bool transposed) : k_(k), n_(n) {
  const int64_t depth = filled(k) / kPanel, stride = transposed ? k : n;
  data_ = buffer(T(), filled(k) * filled(n));
  T* to = data_.template mutable_data_ptr<T>();
  for_each_task(count() * depth, [&](int64_t task) {
    const int64_t j = task / depth, r = task % depth;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    float *block = block_of(scratch), *turned = block_of(scratch);
    const int64_t columns = std::min(kPanel, n - j * kPanel), lines = std::min(kPanel, k - r * kPanel);
    T* panel = to + (j * depth + r) * kPanel * kPanel;
    if (!transposed) return pack_right(x + r * kPanel * stride + j * kPanel, stride, lines, columns, panel, block);
    const bool whole = columns == kPanel && lines == kPanel;
    const float* from = x + j * kPanel * stride + r * kPanel;
    if (!whole) copy_block(from, stride, columns, lines, turned);
    store_right_turned(whole ? from : turned, whole ? stride : kPanel, panel, block);
  });
}

template <class T>
Left<T> Left<T>::transposed(const float* x, int64_t k, int64_t m) {
  const int64_t lines_m = filled(m), depth = filled(k), columns_of_block = std::min(kDepth, depth);
  const at::Tensor packed = buffer(T(), lines_m * ((depth + kDepth - 1) / kDepth * columns_of_block));
  T* to = packed.template mutable_data_ptr<T>();
  for_each_task(depth / kPanel, [&](int64_t r) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    float *block = block_of(scratch), *turned = block_of(scratch);
    const int64_t at = r * kPanel;
    for (int64_t i = 0; i < m; i += kPanel) {
      const float* from = x + at * m + i;
      const int64_t lines = std::min(kPanel, k - at), columns = std::min(kPanel, m - i);
      const bool whole = lines == kPanel && columns == kPanel;
      if (!whole) copy_block(from, m, lines, columns, block);
      store_left_turned(whole ? from : block, whole ? m : kPanel,
                        to + at / kDepth * lines_m * kDepth + i * columns_of_block + at % kDepth, columns_of_block,
                        turned);
    }
  });
  return {x, m, k, packed};
}

template <class T>
typename Left<T>::Tile Left<T>::tile(int64_t i, int64_t count, Scratch& scratch) const {
  const int64_t depth = filled(k_);
  if (packed_.defined()) {
    const int64_t stride = std::min(kDepth, depth);
    return {packed_.template const_data_ptr<T>() + i * stride, stride, filled(m_) * kDepth};
  }
  if constexpr (std::is_same_v<T, float>)
    if (count == side_of(count)) return {x_ + i * k_, k_, kDepth};
  T* room = scratch.take<T>(kPanel * depth);
  float* block = block_of(scratch);
  for (int64_t r = 0; r < depth; r += kPanel) {
    copy_block(x_ + i * k_ + r, k_, count, std::min(kPanel, k_ - r), block);
    store_left(block, room + r, depth);
  }
  return {room, depth, kDepth};
}

template <class T>
void multiply(const Left<T>& left, const std::vector<RowRange>& ranges, const Panels<T>& right, float* out, bool add,
              const AfterProduct& after) {
  struct Rows {
    int64_t begin, count;
  };
  std::vector<Rows> rows;
  for (const auto& range : ranges)
    for (int64_t i = range.begin; i < range.end; i += kPanel) rows.push_back({i, std::min(kPanel, range.end - i)});
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t columns = right.columns();
  // bfloat16 lies in pairs of lines. float32 has no zeros beyond k where it is read as it lies (Left::tile). brgemm
  // makes a kernel for each k, which here is a layer's width; multiply_long, whose k is a number of tokens, fills it
  // up.
  const int64_t depth = std::is_same_v<T, float> ? right.depth() : filled(right.depth());
  // Panels that leave the cache before they are needed again are used for several tiles of rows at a time.
  const bool large = depth * columns * static_cast<int64_t>(sizeof(T)) > kCached && depth <= kDeepest;
  const int64_t most = large ? std::clamp<int64_t>(n / (2 * at::get_num_threads()), 1, 4) : 1;
  const int64_t groups = (n + most - 1) / most;
  // Enough tasks for all cores also where there are few rows.
  const int64_t parts = n == 0 ? 1 : std::clamp<int64_t>(16 / groups, 1, right.count());
  for_each_task(groups * parts, [&](int64_t task) {
    const int64_t part = task % parts, begin = n * (task / parts) / groups, end = n * (task / parts + 1) / groups;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    c10::SmallVector<RowTile<T>, 4> tiles;
    for (int64_t i = begin; i < end; ++i)
      tiles.push_back(
          {rows[i].begin, rows[i].count, left.tile(rows[i].begin, rows[i].count, scratch), block_of(scratch)});
    for (int64_t j = right.count() * part / parts; j < right.count() * (part + 1) / parts; ++j) {
      const int64_t width = std::min(kPanel, columns - j * kPanel);
      const auto to = [&](const RowTile<T>& tile) { return out + tile.row * columns + j * kPanel; };
      for (int64_t r = 0; r < depth; r += kDepth)
        for (const auto& tile : tiles) {
          const bool in_place = direct(tile.count, width);
          multiply_tile(tile.count, width, std::min(kDepth, depth - r), tile.operand.at(r), tile.operand.stride,
                        right.at(j, r), in_place ? to(tile) : tile.result, in_place ? columns : kPanel,
                        r > 0 || (add && in_place));
        }
      for (const auto& tile : tiles) {
        if (!direct(tile.count, width)) store_tile(tile.result, tile.count, width, add, to(tile), columns);
        finish(after, to(tile), columns, tile.row, tile.count, j * kPanel, width);
      }
    }
  });
}

// Threads share out the panels, and where these are few the rows too, whose threads pack the same panels.
template <class T>
void multiply_long(const Left<T>& left, int64_t m, const float* x, int64_t k, int64_t n, float* out) {
  const int64_t threads = at::get_num_threads(), panels = (n + kPanel - 1) / kPanel, tiles = (m + kPanel - 1) / kPanel;
  const int64_t groups = threads == 1 ? 1 : std::min(panels, 4 * threads);
  const int64_t parts =
      threads == 1 ? 1 : std::clamp<int64_t>((2 * threads + groups - 1) / groups, 1, std::max<int64_t>(1, tiles / 2));
  for_each_task(groups * parts, [&](int64_t task) {
    const int64_t group = task / parts, part = task % parts;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    T* packed = scratch.take<T>(kDepth * kPanel);
    float *block = block_of(scratch), *result = block_of(scratch);
    for (int64_t r = 0; r < k; r += kDepth)
      for (int64_t j = panels * group / groups; j < panels * (group + 1) / groups; ++j) {
        const int64_t depth = std::min(kDepth, filled(k) - r), width = std::min(kPanel, n - j * kPanel);
        for (int64_t l = 0; l < depth; l += kPanel)
          pack_right(x + (r + l) * n + j * kPanel, n, std::min(kPanel, k - r - l), width, packed + l * kPanel, block);
        for (int64_t i = tiles * part / parts; i < tiles * (part + 1) / parts; ++i) {
          const int64_t rows = std::min(kPanel, m - i * kPanel);
          const auto tile = left.tile(i * kPanel, rows, scratch);
          float* at = out + i * kPanel * n + j * kPanel;
          const bool in_place = direct(rows, width);
          multiply_tile(rows, width, depth, tile.at(r), tile.stride, packed, in_place ? at : result,
                        in_place ? n : kPanel, in_place && r > 0);
          if (!in_place) store_tile(result, rows, width, r > 0, at, n);
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
                       const AfterProduct&);
template void multiply(const Left<at::BFloat16>&, const std::vector<RowRange>&, const Panels<at::BFloat16>&, float*,
                       bool, const AfterProduct&);
template void multiply_long(const Left<float>&, int64_t, const float*, int64_t, int64_t, float*);
template void multiply_long(const Left<at::BFloat16>&, int64_t, const float*, int64_t, int64_t, float*);

}  // namespace lapse
