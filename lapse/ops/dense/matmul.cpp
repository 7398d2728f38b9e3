#include "lapse/ops/dense/matmul.h"

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

/// A block [64][64] as a right operand's, and transposed.
void store_right(const float* block, float* to) { std::memcpy(to, block, kPanel * kPanel * sizeof(float)); }
void store_right(const float* block, at::BFloat16* to) {
  to_pairs(block, reinterpret_cast<uint16_t*>(to), kPanel, kPanel);
}
void store_right_turned(const float* block, int64_t from_stride, float* to, float*) {
  transpose(block, from_stride, to, kPanel, kPanel, kPanel);
}
void store_right_turned(const float* block, int64_t from_stride, at::BFloat16* to, float* room) {
  transpose(block, from_stride, room, kPanel, kPanel, kPanel);
  store_right(room, to);
}
struct Blocks {
  float *block, *turned;
};
Blocks blocks_of(Scratch& scratch) {
  return {scratch.take<float>(kPanel * kPanel), scratch.take<float>(kPanel * kPanel)};
}

}  // namespace

template <class T>
Panels<T>::Panels(const float* x, int64_t stride, int64_t k, int64_t n, bool transposed)
    : k_(filled(k)), n_(n), x_(x), stride_(stride) {
  // Lines far apart fall on the same sets of the cache; then a copy pays.
  if (std::is_same_v<T, float> && !transposed && n % kPanel == 0 && stride <= 512) in_place_ = k / kPanel * kPanel;
  const int64_t copied = k_ - in_place_, depth = copied / kPanel;
  data_ = buffer(T(), copied * filled(n));
  T* to = data_.template mutable_data_ptr<T>();
  for_each_task(count() * depth, [&](int64_t task) {
    const int64_t j = task / depth, r = in_place_ / kPanel + task % depth;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const auto [block, turned] = blocks_of(scratch);
    const int64_t columns = std::min(kPanel, n - j * kPanel), lines = std::min(kPanel, k - r * kPanel);
    const bool whole = columns == kPanel && lines == kPanel;
    T* panel = to + (j * copied + r * kPanel - in_place_) * kPanel;
    if (transposed) {
      const float* from = x + j * kPanel * stride + r * kPanel;
      if (!whole) copy_block(from, stride, columns, lines, turned);
      store_right_turned(whole ? from : turned, whole ? stride : kPanel, panel, block);
    } else {
      copy_block(x + r * kPanel * stride + j * kPanel, stride, lines, columns, block);
      store_right(block, panel);
    }
  });
}

template <class T>
typename Panels<T>::Piece Panels<T>::at(int64_t j, int64_t r) const {
  if constexpr (std::is_same_v<T, float>)
    if (r < in_place_) return {x_ + r * stride_ + j * kPanel, stride_, std::min(kDepth, in_place_ - r)};
  const int64_t copied = k_ - in_place_;
  return {data_.template const_data_ptr<T>() + (j * copied + r - in_place_) * kPanel, kPanel, std::min(kDepth, k_ - r)};
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
  // Enough tasks for all cores also where there are few rows.
  const auto n = static_cast<int64_t>(pieces.size());
  const int64_t parts = n == 0 ? 1 : std::clamp<int64_t>(16 / n, 1, right.count());
  const int64_t depth = right.depth(), columns = right.columns();
  for_each_task(n * parts, [&](int64_t task) {
    const auto [row, count] = pieces[task / parts];
    const int64_t height = height_of(count);
    const int64_t part = task % parts;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    T* room = scratch.take<T>(kPanel * depth);
    float* block = scratch.take<float>(kPanel * kPanel);
    float* result = scratch.take<float>(kPanel * kPanel);
    const auto tile = left.tile(row, count, depth, room, block);
    for (int64_t j = right.count() * part / parts; j < right.count() * (part + 1) / parts; ++j) {
      const int64_t width = std::min(kPanel, columns - j * kPanel);
      float* at = out + row * columns + j * kPanel;
      const bool direct = count == height && width == kPanel;
      float* c = direct ? at : result;
      const int64_t ldc = direct ? columns : kPanel;
      for (int64_t r = 0; r < depth;) {
        const auto piece = right.at(j, r);
        const int64_t lines = std::min(piece.lines, kDepth - r % kDepth);
        at::native::cpublas::brgemm(height, kPanel, lines, tile.stride, piece.stride, ldc, r > 0 || (add && direct),
                                    tile.data + r / kDepth * tile.block + r % kDepth, piece.data, c,
                                    std::is_same_v<T, at::BFloat16>);
        r += lines;
      }
      if (!direct)
        for (int64_t i = 0; i < count; ++i) {
          if (add)
            add_to(at + i * columns, result + i * kPanel, width);
          else
            std::memcpy(at + i * columns, result + i * kPanel, width * sizeof(float));
        }
      if (bias != nullptr || relu)
        add_bias(at, columns, count, width, bias == nullptr ? bias : bias + j * kPanel, relu);
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

}  // namespace lapse
