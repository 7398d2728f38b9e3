// Which rows a budget drops, one sample a task. What one query drops changes no later F, for only what is held is
// compared: F of a block comes from the tiles of selective_attention, and what remains is a search for the largest.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/cpu.h"
#include "lapse/ops/attention/selective/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

/// What selects as the call's only head.
AttentionInputs selecting(const AttentionInputs& x, const SelectiveOptions& o) {
  const Tensor k = o.select_k ? o.select_k->unsqueeze(1) : x.k.narrow(1, 0, 1);
  return {o.select_q ? o.select_q->unsqueeze(2) : x.q.narrow(2, 0, 1), k, k, x.offsets, x.start, x.time, x.until};
}
SelectiveOptions selecting(SelectiveOptions o) {
  if (o.select_q)
    o.position.reset(), o.age_bias.reset(), o.scale.reset();
  else if (o.age_bias)
    o.age_bias = o.age_bias->narrow(0, 0, 1);
  o.select_q.reset(), o.select_k.reset(), o.seed.reset();
  o.shift = true, o.dropout = 0;
  return o;
}

/// What the inputs already hide.
Tensor until_of(const AttentionInputs& x) {
  return x.until ? x.until->clone(at::MemoryFormat::Contiguous) : at::full(x.time.sizes(), kNoLimit, x.time.options());
}

/// Whether row i goes before row j: the most masked, of equals those that are not first, of these the oldest. An order
/// needs numbers, so NaN counts as infinite; which rows go where some F is NaN is not defined beyond that.
class GoesBefore {
 public:
  GoesBefore(const float* F, const bool* first) : F_(F), first_(first) {}  // either may be null
  bool operator()(int64_t i, int64_t j) const {
    if (F(i) != F(j)) return F(i) > F(j);
    return first_ == nullptr || first_[i] == first_[j] ? i < j : first_[j];
  }

 private:
  float F(int64_t i) const { return F_ == nullptr ? 0 : std::isnan(F_[i]) ? INFINITY : F_[i]; }

  const float* F_;
  const bool* first_;
};

/// Brings the rows that go before all others to the front.
void choose(std::vector<int64_t>& rows, int64_t count, const GoesBefore& before) {
  std::nth_element(rows.begin(), rows.begin() + count - 1, rows.end(), before);
  rows.resize(count);
}

/// The rows of one sample as its queries come.
class Held {
 public:
  /// first [N], or null: which rows go after others of the same F. room: 2 numbers for each row of the plan.
  Held(const PlannedRows& rows, const bool* first, float* room, int64_t budget)
      : rows_(rows),
        first_(first),
        held_(room),
        spared_(room + rows.index.size()),
        budget_(budget),
        by_end_(rows.count) {
    std::fill_n(held_, 2 * rows.index.size(), -INFINITY);
    std::iota(by_end_.begin(), by_end_.end(), 0);
    std::stable_sort(by_end_.begin(), by_end_.end(), [&](int64_t i, int64_t j) { return rows.last[i] < rows.last[j]; });
  }

  /// Calls drop(row) for each that goes before query t, which must come in order; F [rows]: before it.
  template <class Drop>
  void before(int64_t t, const float* F, const Drop& drop) {
    for (; next_ < rows_.count && rows_.first[next_] < t; ++next_) {
      const bool first = first_ != nullptr && first_[rows_.index[next_]];
      (first ? spared_ : held_)[next_] = 0;
      ++count_, spared_count_ += first;
    }
    for (; ended_ < rows_.count && rows_.last[by_end_[ended_]] < t; ++ended_) release(by_end_[ended_]);
    const bool self = next_ < rows_.count && rows_.first[next_] == t;
    const int64_t excess = std::min<int64_t>(count_, count_ + self - budget_);
    if (excess > kSearches) return release_most(excess, F, drop);
    for (int64_t i = 0; i < excess; ++i) {
      const int64_t row = first_to_go(F);
      release(row);
      drop(row);
    }
  }

 private:
  // Memory may come with many more rows than the budget; later each query drops about one.
  static constexpr int64_t kSearches = 8;

  template <class Drop>
  void release_most(int64_t count, const float* F, const Drop& drop) {
    std::vector<int64_t> rows;
    std::unique_ptr<bool[]> first(new bool[next_]);
    for (int64_t i = 0; i < next_; ++i) {
      first[i] = spared_[i] == 0;
      if (held_[i] == 0 || first[i]) rows.push_back(i);
    }
    choose(rows, count, GoesBefore(F, first.get()));
    for (int64_t row : rows) release(row), drop(row);
  }

  void release(int64_t row) {
    count_ -= held_[row] == 0 || spared_[row] == 0;
    spared_count_ -= spared_[row] == 0;
    held_[row] = spared_[row] = -INFINITY;
  }

  int64_t first_to_go(const float* F) {
    const auto n = static_cast<int64_t>(rows_.index.size());
    const int64_t row = selective_largest(F, held_, n);
    if (spared_count_ == 0) return row;
    const int64_t first = selective_largest(F, spared_, n);
    return row < 0 || F[first] > F[row] ? first : row;
  }

  const PlannedRows& rows_;
  const bool* first_;
  float *held_, *spared_;  // of rows that are not first, and first: 0, or -inf if not held, or the query's own
  const int64_t budget_;
  std::vector<int64_t> by_end_;
  int64_t next_ = 0, ended_ = 0, count_ = 0, spared_count_ = 0;
};

class Prune {
 public:
  Prune(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget)
      : options_(selecting(o)), call_(selecting(x, o), options_), budget_(budget) {
    start_ = x.start.contiguous(), until_ = until_of(x);
    if (o.first) first_ = o.first->contiguous();
  }

  Tensor run() {
    for_each_task(call_.heads.B, [&](int64_t b) { prune(b); });
    return until_;
  }

 private:
  void prune(int64_t b) {
    const PlannedRows& rows = call_.rows(b);
    if (rows.count == 0) return;
    const auto n = static_cast<int64_t>(rows.index.size());
    const int64_t most = call_.heads.queries;
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const RowTask task{b, 0, 0, n, 0, 1};
    TiledWork<float> work(call_.heads, task, scratch);
    float* before = scratch.take<float>(n);
    float* F = scratch.take<float>(most * n);  // [queries][rows]
    float* score = scratch.take<float>(kTileRows * most);
    float* masking = scratch.take<float>(kTileRows * most);
    call_.masking_before(b, 0, n, before);
    Held held(rows, first_.defined() ? first_.const_data_ptr<bool>() : nullptr, scratch.take<float>(2 * n), budget_);
    const int64_t start = start_.const_data_ptr<int64_t>()[b];
    for (int64_t j = 0; j < call_.heads.query_blocks(); ++j) {
      const int64_t now = j * most, valid = std::min(most, call_.heads.K - now);
      for (int64_t t = 0; t < valid; ++t) std::copy_n(before, n, F + t * n);
      mask(work, b, j, score, masking, before, F);
      for (int64_t t = 0; t < valid; ++t)
        held.before(now + t, F + t * n,
                    [&](int64_t row) { until_.mutable_data_ptr<int64_t>()[rows.index[row]] = start + now + t; });
    }
  }

  /// F within block j, and `before` the next one.
  void mask(TiledWork<float>& work, int64_t b, int64_t j, float* score, float* masking, float* before, float* F) const {
    const auto n = static_cast<int>(work.tiles() * kTileRows);
    work.begin_queries(j);
    const int lanes = work.lanes();
    for (int64_t i = 0; i < work.tiles(); ++i) {
      ScoreTile scores;
      if (!work.tile(i, scores)) continue;
      work.scores(i, score);
      const SelectiveTile tile = call_.tile(scores, b, i * kTileRows);
      selective_tile_masking(tile, score, before + i * kTileRows, masking, nullptr);
      transpose(masking, lanes, F + i * kTileRows, n, tile.scores.rows, lanes);
      selective_tile_sums(tile, score, before + i * kTileRows);
    }
  }

  const SelectiveOptions options_;
  const SelectiveCall<float> call_;
  const int64_t budget_;
  Tensor start_, first_, until_;
};

/// One query: F is what earlier blocks left, and no score is needed.
void prune_before(int64_t now, int64_t begin, int64_t end, const int64_t* time, const float* masking, const bool* first,
                  int64_t max_age, int64_t budget, int64_t* until) {
  std::vector<int64_t> held;
  int64_t self = 0;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t age = now - time[i];
    if (age < 0 || age > max_age || now >= until[i]) continue;
    if (age == 0)
      self = 1;
    else
      held.push_back(i);
  }
  const int64_t excess = std::min<int64_t>(held.size(), held.size() + self - budget);
  if (excess <= 0) return;
  choose(held, excess, GoesBefore(masking, first));
  for (int64_t row : held) until[row] = now;
}

Tensor prune_one(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget) {
  const Tensor start = x.start.contiguous(), time = x.time.contiguous();
  const Tensor masking = o.masking ? o.masking->to(at::kFloat).contiguous() : Tensor();
  const Tensor first = o.first ? o.first->contiguous() : Tensor();
  Tensor until = until_of(x);
  const auto* offsets = x.offsets.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < x.q.size(0); ++b)
    prune_before(start.const_data_ptr<int64_t>()[b], offsets[b], offsets[b + 1], time.const_data_ptr<int64_t>(),
                 masking.defined() ? masking.const_data_ptr<float>() : nullptr,
                 first.defined() ? first.const_data_ptr<bool>() : nullptr, o.max_age, budget,
                 until.mutable_data_ptr<int64_t>());
  return until;
}

}  // namespace

Tensor selective_prune_tiled(const AttentionInputs& x, const SelectiveOptions& o, int64_t budget) {
  return x.q.size(1) == 1 ? prune_one(x, o, budget) : Prune(x, o, budget).run();
}

}  // namespace lapse
