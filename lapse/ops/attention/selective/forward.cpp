// The forward pass in tiles, in two steps. First what F is before each block of queries, one sum for each row, from the
// scores that select; then, block by block, F within the block, once for all heads, and attention.

#include <numeric>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/cpu.h"
#include "lapse/ops/attention/selective/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kPackedBytes = int64_t{16} << 20;  // of keys and values that are packed at a time, if several samples
constexpr int64_t kRowTiles = 4;                     // of a task of the first step
constexpr int64_t kTasks = 16;                       // of the second step, or more,
constexpr int64_t kHeads = 4;                        // with at least so many heads, for each computes F

/// Heads [first, last) of one block of queries.
struct BlockTask {
  int64_t sample, block, first, last;
};

template <class T>
class Forward {
 public:
  Forward(const AttentionInputs& x, const SelectiveOptions& o) : call_(x, o), options_(o) {
    const auto wide = x.q.options().dtype(at::kFloat);
    y_.out = at::empty(x.q.sizes(), heads_.q_tensor.options());
    y_.memory = at::empty({heads_.B, heads_.K}, wide);
    y_.masking = at::zeros({heads_.N}, wide);
    y_.stats = at::empty({heads_.B, heads_.K, heads_.H}, wide);
    const int64_t begin = heads_.offsets[0], rows = heads_.offsets[heads_.B] - begin;
    if (o.masking) y_.masking.narrow(0, begin, rows).copy_(o.masking->narrow(0, begin, rows));
  }

  SelectiveOutputs run() {
    first_tile_.assign(heads_.B, 0);
    for (int64_t begin = 0; begin < heads_.B;) {
      int64_t end = begin, tiles = 0;
      for (; end < heads_.B; ++end) {
        const int64_t bytes = 2 * (tiles + call_.tiles(end)) * heads_.G * tile_size() * sizeof(T);
        if (end > begin && bytes > kPackedBytes) break;
        first_tile_[end] = tiles;
        tiles += call_.tiles(end);
      }
      attend(begin, end, tiles);
      begin = end;
    }
    return y_;
  }

 private:
  int64_t tile_size() const { return kTileRows * heads_.width; }
  // Tile i of what head h of the queries reads.
  T* keys(int64_t b, int64_t h, int64_t i) { return keys_.mutable_data_ptr<T>() + packed_at(b, h, i); }
  T* values(int64_t b, int64_t h, int64_t i) { return values_.mutable_data_ptr<T>() + packed_at(b, h, i); }
  int64_t packed_at(int64_t b, int64_t h, int64_t i) const {
    return (first_tile_[b] * heads_.G + h / heads_.group * call_.tiles(b) + i) * tile_size();
  }
  /// F of the rows of tile i for the first query of block j.
  float* before(int64_t b, int64_t i, int64_t j) {
    return before_.mutable_data_ptr<float>() + ((first_tile_[b] + i) * heads_.query_blocks() + j) * kTileRows;
  }

  /// Samples [begin, end), which have so many tiles of rows.
  void attend(int64_t begin, int64_t end, int64_t tiles) {
    const int64_t blocks = heads_.query_blocks(), size = tiles * heads_.G * tile_size();
    keys_ = at::empty({size}, heads_.q_tensor.options()), values_ = at::empty_like(keys_);
    before_ = at::empty({tiles * blocks * kTileRows}, y_.memory.options());
    std::vector<RowTask> sums;
    std::vector<BlockTask> rest;
    const int64_t groups =
        std::clamp<int64_t>(kTasks / ((end - begin) * blocks), 1, std::max<int64_t>(heads_.H / kHeads, 1));
    for (int64_t b = begin; b < end; ++b) {
      const int64_t n = call_.tiles(b);
      for (int64_t i = 0; i < n; i += kRowTiles)
        sums.push_back({b, 0, i * kTileRows, std::min(i + kRowTiles, n) * kTileRows, 0, 1});
    }
    for (int64_t j = blocks; j-- > 0;)  // the last ones see most
      for (int64_t b = begin; b < end; ++b)
        for (int64_t g = 0; g < groups; ++g) rest.push_back({b, j, heads_.H * g / groups, heads_.H * (g + 1) / groups});
    for_each_task(static_cast<int64_t>(sums.size()), [&](int64_t i) { sum(sums[i]); });
    for_each_task(static_cast<int64_t>(rest.size()), [&](int64_t i) { attend(rest[i]); });
  }

  /// Packs some rows' keys and values, and sums S over the queries.
  void sum(const RowTask& task) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const int64_t b = task.sample, first = task.begin / kTileRows, n = (task.end - task.begin) / kTileRows;
    const int64_t* index = call_.rows(b).index.data();
    T* v = scratch.take<T>(tile_size());
    for (int64_t g = 0; g < heads_.G; ++g)
      for (int64_t i = first; i < first + n; ++i) {
        const int64_t stride = heads_.G * heads_.D, at = g * heads_.D, h = g * heads_.group, w = heads_.width;
        pack(heads_.k + at, stride, index + i * kTileRows, kTileRows, heads_.D, keys(b, h, i), kTileRows, w);
        pack(heads_.v + at, stride, index + i * kTileRows, kTileRows, heads_.D, v, kTileRows, w);
        transposed(v, kTileRows, w, values(b, h, i));
      }
    TiledWork<T> work(call_.selects(), task, scratch, call_.form ? nullptr : keys(b, 0, first));
    float* score = scratch.take<float>(kTileRows * heads_.queries);
    float* sums = scratch.take<float>(n * kTileRows);
    call_.masking_before(b, task.begin, task.end, sums);
    const auto [from, to] = call_.blocks(b, task.begin, task.end);
    for (int64_t j = 0; j < heads_.query_blocks(); ++j) {
      for (int64_t i = 0; i < n; ++i) std::copy_n(sums + i * kTileRows, kTileRows, before(b, first + i, j));
      if (j < from || j >= to) continue;
      work.begin_queries(j);
      for (int64_t i = 0; i < n; ++i) {
        ScoreTile tile;
        if (!work.tile(i, tile)) continue;
        work.scores(i, score);
        selective_tile_sums(call_.tile(tile, b, task.begin + i * kTileRows), score, sums + i * kTileRows);
      }
    }
    float* masking = y_.masking.template mutable_data_ptr<float>();
    for (int64_t i = 0; i < n * kTileRows; ++i)
      if (const int64_t row = index[task.begin + i]; row >= 0) masking[row] = sums[i] / call_.unit;
  }

  struct Buffers {
    float *masking, *score, *values, *out;  // masking: of every tile of rows that the block sees
    T* weight;
    alignas(64) float memory[kTileQueries] = {};
  };

  void attend(const BlockTask& task) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const int64_t b = task.sample, lanes = heads_.lanes(task.block), first = task.block * heads_.queries;
    const int64_t size = kTileRows * lanes;
    Buffers m;
    m.masking = scratch.take<float>(call_.tiles(b) * size);
    m.score = scratch.take<float>(size);
    m.values = scratch.take<float>(heads_.width * lanes), m.out = scratch.take<float>(heads_.width * lanes);
    m.weight = scratch.take<T>(size);
    const RowTask rows{b, 0, 0, call_.tiles(b) * kTileRows, 0, 1};
    TiledWork<T> work(heads_, rows, scratch, keys(b, 0, 0));
    const bool together = !call_.form && task.first == 0;  // head 0's scores serve both
    if (!together && call_.form) {
      TiledWork<T> form(*call_.form, rows, scratch);
      mask(task, form, m);
    } else if (!together) {
      mask(task, work, m);
    }
    for (int64_t h = task.first; h < task.last; ++h) {
      work.set_head(h, keys(b, h, 0));
      attend(task, h, work, together && h == 0, m);
    }
    if (task.first > 0) return;
    for (int64_t t = 0; t < lanes && first + t < heads_.K; ++t)
      y_.memory.template mutable_data_ptr<float>()[b * heads_.K + first + t] = m.memory[t];
  }

  float* masking_of(const BlockTask& task, const ScoreTile& tile, int64_t i, Buffers& m) {
    float* masking = m.masking + i * kTileRows * tile.queries;
    selective_tile_masking(call_.tile(tile, task.sample, i * kTileRows), m.score, before(task.sample, i, task.block),
                           masking, task.first == 0 ? m.memory : nullptr);
    return masking;
  }

  void mask(const BlockTask& task, TiledWork<T>& work, Buffers& m) {
    work.begin_queries(task.block);
    for (int64_t i = 0; i < work.tiles(); ++i) {
      ScoreTile tile;
      if (!work.tile(i, tile)) continue;
      work.scores(i, m.score);
      masking_of(task, tile, i, m);
    }
  }

  void attend(const BlockTask& task, int64_t h, TiledWork<T>& work, bool selects, Buffers& m) {
    const int64_t lanes = heads_.lanes(task.block), width = heads_.width;
    work.begin_queries(task.block);
    alignas(64) RunningSoftmax running;
    alignas(64) float rescale[kTileQueries];
    begin_softmax(running);
    bool any = false;
    for (int64_t i = 0; i < work.tiles(); ++i) {
      ScoreTile tile;
      if (!work.tile(i, tile)) continue;
      if (i + 1 < work.tiles()) prefetch(keys(task.sample, h, i + 1)), prefetch(values(task.sample, h, i + 1));
      work.scores(i, m.score);
      tile.masking = selects ? masking_of(task, tile, i, m) : m.masking + i * kTileRows * lanes;
      tile_forward(tile, m.score, running, rescale, nullptr);
      if (any) scale_columns(m.values, rescale, static_cast<int>(width), static_cast<int>(lanes));
      multiply(width, lanes, tile.rows, values(task.sample, h, i), kTileRows,
               rounded_right(m.score, tile.rows, lanes, m.weight), m.values, std::exchange(any, true));
    }
    if (!any) std::fill_n(m.values, width * lanes, 0.f);
    finish(task, h, running, m);
  }

  /// Prefetches a packed tile while the one before it is multiplied.
  void prefetch(const T* tile) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t i = 0; i < tile_size(); i += kLine) __builtin_prefetch(tile + i, 0, 2);
  }

  void finish(const BlockTask& task, int64_t h, const RunningSoftmax& running, Buffers& m) {
    const int64_t lanes = heads_.lanes(task.block), width = heads_.width, first = task.block * heads_.queries;
    const float scale = 1 / call_.unit;
    alignas(64) float factor[kTileQueries];
    for (int64_t t = 0; t < lanes; ++t) {
      const float sum = running.sum[t];
      factor[t] = sum == 0 ? 0 : 1 / sum;
      if (first + t >= heads_.K) continue;
      const int64_t at = heads_.query_at(task.sample, first + t, h) / heads_.D;
      y_.stats.template mutable_data_ptr<float>()[at] =
          sum == 0 ? -INFINITY : running.largest[t] * scale + std::log(sum);
    }
    transpose(m.values, static_cast<int>(lanes), m.out, static_cast<int>(width), static_cast<int>(width),
              static_cast<int>(lanes));
    T* to = y_.out.template mutable_data_ptr<T>() + heads_.query_at(task.sample, first, h);
    store_lines(m.out, width, std::min(lanes, heads_.K - first), heads_.D, factor, 1,
                Lines<T>{to, heads_.H * heads_.D});
  }

  const SelectiveCall<T> call_;
  const TiledCall<T>& heads_ = call_.heads;
  const SelectiveOptions& options_;
  SelectiveOutputs y_;
  std::vector<int64_t> first_tile_;  // of each sample among those that are attended together
  Tensor keys_, values_;             // [sample][key head][tile]: [64][width], and transposed
  Tensor before_;                    // [sample][tile][block of queries][64]
};

}  // namespace

SelectiveOutputs selective_attention_tiled(const AttentionInputs& x, const SelectiveOptions& o, bool bfloat16) {
  return bfloat16 ? Forward<at::BFloat16>(x, o).run() : Forward<float>(x, o).run();
}

}  // namespace lapse
