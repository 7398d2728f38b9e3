// What the forward and the backward pass of the tiled ramp_attention share: a call's operands, and one task's tiles.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/random.h"
#include "lapse/ops/attention/panel.h"
#include "lapse/ops/attention/plan.h"
#include "lapse/ops/attention/tile.h"
#include "lapse/ops/parallel/scratch.h"

namespace lapse {

constexpr float kLog2e = 1.4426950408889634f;

/// Inputs as contiguous memory of T, float or at::BFloat16, and the plan.
template <class T>
struct TiledCall {
  TiledCall(const AttentionInputs& inputs, const CoreOptions& options);

  const CoreOptions& options;
  at::Tensor q_tensor, k_tensor, v_tensor, logit_tensor, position_tensor, position_t_tensor, bias_tensor;  // owners
  int64_t B, K, H, G, D, N;
  int64_t group;    ///< H / G: query heads that share a key head
  int64_t P, ages;  ///< embeddings of ages 1 ... P; rounded up to a multiple of 64
  int64_t A = 0;    ///< columns of age_bias
  int64_t width;    ///< D rounded up to a multiple of 16
  int queries;      ///< of a block, but of the last one
  float unit;       ///< 1 / scale: a score is a logit times this
  const int64_t* offsets;
  const T *q, *k, *v;
  const float* logit = nullptr;   ///< [N, H]
  const T* position = nullptr;    ///< [ages][width]
  const T* position_t = nullptr;  ///< [width][ages]
  const float* bias = nullptr;    ///< [H][bias_width()] scores
  std::vector<float> head_span;   ///< [H], or empty
  uint64_t seed = 0;
  RowPlan plan;

  bool spans() const { return options.row_span.has_value() || options.head_span.has_value(); }
  /// A line of the padded table of age_bias: kTileQueries times its first column, its columns, and kTileQueries times
  /// the last, so that whatever ages a row has at the queries of a tile, their biases are one line.
  int64_t bias_width() const { return A + 2 * kTileQueries; }
  /// Where this line begins, for a row of this age at the tile's first query.
  int32_t bias_at(int64_t age) const {
    return static_cast<int32_t>(std::clamp<int64_t>(age - options.bias_age, -kTileQueries, A) + kTileQueries);
  }
  int64_t query_blocks() const { return (K + queries - 1) / queries; }
  /// Columns of block j's tiles: a multiple of 16, so that a last block of few queries has few.
  int lanes(int64_t j) const { return static_cast<int>(std::min<int64_t>(queries, (K - j * queries + 15) / 16 * 16)); }
  /// The first element of q, out, ... [B, K, H, D] of one head's query.
  int64_t query_at(int64_t b, int64_t t, int64_t h) const { return ((b * K + t) * H + h) * D; }
};

/// One task: rows' operands once, queries' operands anew for each block of queries of each head. `packed`: the task's
/// k, packed already. It begins with the first head that reads the task's key head.
template <class T>
class TiledWork {
 public:
  TiledWork(const TiledCall<T>& call, const RowTask& task, Scratch& scratch, const T* packed = nullptr)
      : call_(call), task_(task), rows_(call.plan.rows[task.sample]), k_(packed) {
    tiles_ = (task.end - task.begin) / kTileRows;
    const int64_t n = task.end - task.begin, w = call.width, lanes = call.queries;
    if (packed == nullptr) {
      T* k = scratch.take<T>(n * w);
      pack(call.k + task.key_head * call.D, call.G * call.D, rows_.index.data() + task.begin, n, call.D, k, n, w);
      k_ = k;
    }
    q_ = scratch.take<T>(lanes * w);
    qt_ = scratch.take<T>(lanes * w);
    if (call.position != nullptr) {
      age_at_ = scratch.take<int32_t>(n);
      by_age_ = scratch.take<float>((2 * lanes + ages_needed()) * lanes);
    }
    if (call.bias != nullptr) bias_at_ = scratch.take<int32_t>(n);
    if (call.options.dropout > 0) dropout_ = scratch.take<float>(kTileRows * lanes);
    if (call.logit != nullptr) logits_ = scratch.take<float>(n);
    if (!call.head_span.empty()) head_spans_ = scratch.take<float>(n), head_full_ = scratch.take<int32_t>(n);
    bounds_ = scratch.take<Bounds>(tiles_);
    set_head(task.key_head * call.group);
  }

  /// Turns to another head that reads the same keys; `packed`: or reads these, packed already.
  void set_head(int64_t head, const T* packed = nullptr) {
    if (packed != nullptr) k_ = packed;
    if (head == head_) return;
    const bool first = head_ < 0;
    head_ = head;
    if (logits_ != nullptr) set_logits();
    if (head_spans_ != nullptr) set_head_span();
    if (!first && head_spans_ == nullptr) return;  // bounds are those of every head
    for (int64_t i = 0; i < tiles_; ++i) bounds_[i] = bounds_of(i);
  }
  int64_t head() const { return head_; }

  int64_t tiles() const { return tiles_; }
  /// Lines of tile i: the last one need not be whole.
  int64_t height(int64_t i) const {
    const int64_t left = std::min(rows_.count, task_.end) - task_.begin - i * kTileRows;
    return std::min<int64_t>(kTileRows, (left + 15) / 16 * 16);
  }
  const int64_t* rows_of(int64_t i) const { return rows_.index.data() + task_.begin + i * kTileRows; }
  const T* k(int64_t i) const { return k_ + i * kTileRows * call_.width; }
  const T* q() const { return q_; }
  int lanes() const { return lanes_; }  ///< columns of the current tiles
  int64_t valid() const { return valid_; }

  /// Makes the queries of block j the columns of the next tiles.
  void begin_queries(int64_t j) {
    first_ = j * call_.queries;
    lanes_ = call_.lanes(j);
    valid_ = std::min<int64_t>(lanes_, call_.K - first_);
    const T* from = call_.q + call_.query_at(task_.sample, first_, head_);
    pack<T>(from, call_.H * call_.D, nullptr, valid_, call_.D, q_, lanes_, call_.width);
    transposed_right(q_, lanes_, call_.width, qt_);
    lines_ = 0;
    if (call_.position != nullptr) multiply_ages();
    if (bias_at_ == nullptr) return;
    for (int64_t i = 0; i < tiles_ * kTileRows; ++i) bias_at_[i] = call_.bias_at(rows_.age[task_.begin + i] + first_);
  }

  /// Row tile i before the current queries; false if none of them sees any of its rows.
  bool tile(int64_t i, ScoreTile& tile) {
    const int64_t at = task_.begin + i * kTileRows, end = first_ + valid_ - 1;
    const Bounds& bounds = bounds_[i];
    if (bounds.soonest > end || bounds.longest < first_) return false;
    const int64_t whole = first_ + lanes_ - 1;  // masks columns beyond `end` too: sums run over all columns
    tile = {.rows = static_cast<int>(height(i)),
            .queries = lanes_,
            .first_query = static_cast<int>(first_),
            .age = rows_.age.data() + at,
            .first = rows_.first.data() + at,
            .last = rows_.last.data() + at,
            .ramp = static_cast<float>(call_.options.ramp),
            .scale = scale2()};
    tile.masked = bounds.latest > first_ || bounds.shortest < whole || valid_ < lanes_;
    if (call_.spans()) {
      tile.masked = tile.masked || bounds.full < whole;
      tile.span = head_spans_ != nullptr ? head_spans_ + i * kTileRows : rows_.span.data() + at;
    }
    if (logits_ != nullptr) tile.logit = logits_ + i * kTileRows;
    if (lines_ > 0 && has_ages(bounds)) tile.age_at = age_at_ + i * kTileRows, tile.by_age = by_age_;
    if (bias_at_ != nullptr)
      tile.bias = call_.bias + head_ * call_.bias_width(), tile.bias_at = bias_at_ + i * kTileRows;
    if (dropout_ != nullptr) draw(at), tile.dropout = dropout_;
    return true;
  }

  /// q . k of row tile i.
  void scores(int64_t i, float* score) const {
    multiply(height(i), lanes_, call_.width, k(i), call_.width, qt_, score, false);
  }

  // Ages that the current queries and rows have: lines of by_age, lanes() of zeros before and after.
  int64_t lines() const { return lines_; }
  int64_t first_age_block() const { return age_block_; }
  int64_t most_lines() const { return 2 * call_.queries + ages_needed(); }

 private:
  float scale2() const { return kLog2e / call_.unit; }
  int64_t ages_needed() const { return call_.ages + kTileRows; }

  /// The extremes of PlannedRows::first, last and full in a tile, and of its rows' ages at query 0.
  struct Bounds {
    int32_t soonest, latest, shortest, longest, full, youngest, oldest;
  };
  Bounds bounds_of(int64_t i) const {
    const int64_t at = task_.begin + i * kTileRows;
    const int32_t *first = rows_.first.data() + at, *last = rows_.last.data() + at;
    const int32_t* full = head_full_ != nullptr ? head_full_ + i * kTileRows : rows_.full.data() + at;
    const auto [soonest, latest] = std::minmax_element(first, first + kTileRows);
    const auto [shortest, longest] = std::minmax_element(last, last + kTileRows);
    const int32_t* age = rows_.age.data() + at;  // rows that only fill the tile up come last
    const auto [youngest, oldest] = std::minmax_element(age, age + std::min<int64_t>(kTileRows, rows_.count - at));
    return {*soonest, *latest, *shortest, *longest, *std::min_element(full, full + kTileRows), *youngest, *oldest};
  }
  /// Whether some row of the tile may have an age in 1 ... P at one of the current queries; by the extremes alone, so
  /// that there may be none.
  bool has_ages(const Bounds& tile) const {
    return tile.youngest + first_ <= call_.P && tile.oldest + first_ >= 2 - lanes_;
  }

  void set_logits() {
    for (int64_t i = 0; i < tiles_ * kTileRows; ++i) {
      const int64_t row = rows_.index[task_.begin + i];
      logits_[i] = row < 0 ? 0 : call_.logit[row * call_.H + head_] * call_.unit;
    }
  }

  void set_head_span() {
    const float span = call_.head_span[head_];
    constexpr float kFar = 1 << 30;
    // A span of NaN is nowhere m = 1: each tile computes m, and forward's last step makes the head's output NaN.
    const auto whole = static_cast<int64_t>(std::isnan(span) ? -kFar : std::floor(std::clamp(span, -kFar, kFar)));
    for (int64_t i = 0; i < tiles_ * kTileRows; ++i) {
      head_spans_[i] = span;
      head_full_[i] =
          static_cast<int32_t>(std::clamp<int64_t>(whole - rows_.age[task_.begin + i], -(1 << 30), 1 << 30));
    }
  }

  /// q . p_a for the ages that occur, skewed so that the ages of one row are one line.
  void multiply_ages() {
    const int64_t n = lanes_;
    // Ages at column 0; later columns are older. Rows without any age in 1 ... P take no part: beside rows of today a
    // tile may have one that is far older.
    int64_t youngest = call_.P + 1, oldest = 0;
    const auto include = [&](int64_t age) {
      if (age <= call_.P && age >= 2 - n) youngest = std::min(youngest, age), oldest = std::max(oldest, age);
    };
    for (int64_t i = 0; i < tiles_; ++i) {
      const int64_t first = bounds_[i].youngest + first_, last = bounds_[i].oldest + first_;
      if (!has_ages(bounds_[i])) continue;
      if (first >= 2 - n && last <= call_.P)
        include(first), include(last);
      else
        for (int64_t r = 0; r < kTileRows; ++r) include(rows_.age[task_.begin + i * kTileRows + r] + first_);
    }
    if (youngest > call_.P) return;
    age_block_ = (std::max<int64_t>(youngest, 1) - 1) / kTileRows;
    const int64_t end = (std::min(call_.P, std::max<int64_t>(oldest, 1) + n - 1) - 1) / kTileRows + 1;
    const int64_t blocks = end - age_block_;
    lines_ = blocks * kTileRows + 2 * n;
    std::fill_n(by_age_, n * n, 0.f);
    std::fill_n(by_age_ + (n + blocks * kTileRows) * n, n * n, 0.f);
    for (int64_t j = 0; j < blocks; ++j)
      multiply(kTileRows, n, call_.width, call_.position + (age_block_ + j) * kTileRows * call_.width, call_.width, qt_,
               by_age_ + (n + j * kTileRows) * n, false);
    skew(by_age_, static_cast<int>(lines_), static_cast<int>(n));
    const int64_t line0 = age_block_ * kTileRows + 1 - n;  // the age of line 0
    for (int64_t i = 0; i < tiles_; ++i) {
      if (!has_ages(bounds_[i])) continue;
      for (int64_t r = i * kTileRows; r < (i + 1) * kTileRows; ++r) {
        const int64_t age = rows_.age[task_.begin + r] + first_;
        age_at_[r] = age <= call_.P && age >= 2 - n ? static_cast<int32_t>(age - line0) : -1;
      }
    }
  }

  /// Dropout's factors, of the same counters as the reference's.
  void draw(int64_t at) {
    const auto& c = call_;
    const uint64_t query = (task_.sample * c.H + head_) * c.K + first_;
    draw_dropout(c.options.dropout, c.seed, query, lanes_, rows_.index.data() + at, kTileRows, dropout_);
  }

  const TiledCall<T>& call_;
  const RowTask task_;
  const PlannedRows& rows_;
  int64_t head_ = -1;
  int lanes_ = 0;
  int64_t tiles_ = 0, first_ = 0, valid_ = 0;
  int64_t lines_ = 0, age_block_ = 0;
  const T* k_;
  T *q_, *qt_;
  int32_t *age_at_ = nullptr, *bias_at_ = nullptr;
  float *by_age_ = nullptr, *dropout_ = nullptr, *logits_ = nullptr, *head_spans_ = nullptr;
  int32_t* head_full_ = nullptr;
  Bounds* bounds_ = nullptr;
};

/// Elsewhere bfloat16 is computed in float32.
bool computes_bfloat16(const AttentionInputs& inputs);

/// lse2 of tile.h for block j of queries, from the forward pass's statistics, [B, K, H, 2] with spans or [B, K, H,
/// `each`]: weights are 2^(s - lse2). So large where nothing is visible, and beyond the block, that they are 0.
template <class T>
void softmax_base(const TiledCall<T>& call, int64_t sample, int64_t head, const float* stats, int64_t each, int64_t j,
                  float* lse2) {
  for (int64_t t = 0; t < call.lanes(j); ++t) {
    const int64_t query = j * call.queries + t;
    lse2[t] = 1e30f;
    if (query >= call.K) continue;
    const float* at = stats + call.query_at(sample, query, head) / call.D * each;
    if (at[0] == -INFINITY) continue;
    lse2[t] = at[0] * kLog2e + (call.spans() ? std::log2(at[1] + static_cast<float>(kRenormalisation)) : 0);
  }
}

}  // namespace lapse
