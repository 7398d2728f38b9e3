// The gradients of the tables by age, of positions and of age_bias, which every task of a call adds to.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lapse/ops/attention/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {

template <class T>
class TableGradients {
 public:
  explicit TableGradients(const TiledCall<T>& call) : call_(call) {}

  struct Tables {
    float* position;  ///< [ages][width]
    float* bias;      ///< [H][bias_width()], padded as the call's is
  };

  /// Calls f(task, tables) for each of n tasks. Tables belong to a group of tasks, which run in their order; they are
  /// few, for they may be large, and their number depends on nothing but the shapes.
  template <class F>
  void for_each(int64_t n, const F& f) {
    const int64_t size = position_size() + bias_size();
    const int64_t groups = size == 0 ? n : std::min(n, std::clamp<int64_t>((int64_t{1} << 22) / size, 8, 32));
    tables_.resize(groups);
    for_each_task(groups, [&](int64_t g) {
      tables_[g].assign(size, 0.f);
      for (int64_t i = n * g / groups; i < n * (g + 1) / groups; ++i)
        f(i, Tables{tables_[g].data(), tables_[g].data() + position_size()});
    });
  }

  /// The gradient of logits by row and query, in lines of `by_age` (ScoreTile::age_at), goes on to dq [width][queries]
  /// and to the table. right, left: room for 64 x queries each.
  void add_positions(const TiledWork<T>& work, float* by_age, const T* q_right, float* dq, float* table, T* right,
                     T* left) const {
    const int64_t lanes = work.lanes(), w = call_.width;
    unskew(by_age, static_cast<int>(work.lines()), static_cast<int>(lanes));
    const int64_t blocks = (work.lines() - 2 * lanes) / kTileRows;
    for (int64_t b = 0; b < blocks; ++b) {
      const float* lines = by_age + (lanes + b * kTileRows) * lanes;
      const int64_t age = (work.first_age_block() + b) * kTileRows;
      multiply(w, lanes, kTileRows, call_.position_t + age, call_.ages, rounded_right(lines, kTileRows, lanes, right),
               dq, true);
      multiply(kTileRows, w, lanes, rounded(lines, kTileRows * lanes, left), lanes, q_right, table + age * w, true);
    }
  }

  /// The gradient of one head's logits, in rows by queries of a tile.
  void add_bias(const ScoreTile& tile, const float* ds, int64_t head, float* table) const {
    float* line = table + head * call_.bias_width();
    for (int r = 0; r < tile.rows; ++r) add_to(line + tile.bias_at[r], ds + r * tile.queries, tile.queries);
  }

  /// [P, D], or [0, 0] without positions.
  at::Tensor position() const {
    const auto wide = call_.q_tensor.options().dtype(at::kFloat);
    const auto& position = call_.options.position;
    if (call_.position == nullptr) return at::zeros({position ? call_.P : 0, position ? call_.D : 0}, wide);
    at::Tensor sum = at::zeros({call_.ages, call_.width}, wide);
    for (const auto& table : tables_) add_to(sum.mutable_data_ptr<float>(), table.data(), position_size());
    return sum.narrow(0, 0, call_.P).narrow(1, 0, call_.D).mul(static_cast<double>(1 / call_.unit));
  }

  /// [H, A], or [0, 0] without age_bias.
  at::Tensor age_bias() const {
    const int64_t A = call_.A, pad = kTileQueries;
    const auto wide = call_.q_tensor.options().dtype(at::kFloat);
    if (call_.bias == nullptr) return at::zeros({0, 0}, wide);
    at::Tensor sum = at::zeros({call_.H, call_.bias_width()}, wide);
    for (const auto& table : tables_)
      add_to(sum.mutable_data_ptr<float>(), table.data() + position_size(), bias_size());
    at::Tensor bias = sum.narrow(1, pad, A).clone();
    bias.select(1, 0).add_(sum.narrow(1, 0, pad).sum(1));
    bias.select(1, A - 1).add_(sum.narrow(1, pad + A, pad).sum(1));
    return bias;
  }

 private:
  int64_t position_size() const { return call_.position != nullptr ? call_.ages * call_.width : 0; }
  int64_t bias_size() const { return call_.bias != nullptr ? call_.H * call_.bias_width() : 0; }

  const TiledCall<T>& call_;
  std::vector<std::vector<float>> tables_;  // [group]: positions, then biases
};

}  // namespace lapse
