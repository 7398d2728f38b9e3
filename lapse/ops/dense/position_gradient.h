// The gradient of the table of positions, which every task of a call adds to.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lapse/ops/attention/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {

template <class T>
class PositionGradient {
 public:
  explicit PositionGradient(const TiledCall<T>& call) : call_(call) {}

  /// Calls f(task, table) for each of n tasks. A table [ages][width] belongs to a group of tasks, which run in their
  /// order; tables are few, for they may be large, and their number depends on nothing but the shapes.
  template <class F>
  void for_each(int64_t n, const F& f) {
    const int64_t size = call_.position != nullptr ? call_.ages * call_.width : 0;
    const int64_t groups = size == 0 ? n : std::min(n, std::clamp<int64_t>((int64_t{1} << 22) / size, 8, 32));
    tables_.resize(groups);
    for_each_task(groups, [&](int64_t g) {
      tables_[g].assign(size, 0.f);
      for (int64_t i = n * g / groups; i < n * (g + 1) / groups; ++i) f(i, tables_[g].data());
    });
  }

  /// The gradient of logits by row and query, in lines of `by_age` (ScoreTile::age_at), goes on to dq [width][queries]
  /// and to the table. right, left: room for 64 x queries each.
  void add(const TiledWork<T>& work, float* by_age, const T* q_right, float* dq, float* table, T* right,
           T* left) const {
    const int64_t lanes = call_.queries, w = call_.width;
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

  /// [P, D], or [0, 0] without positions.
  at::Tensor total(double scale) const {
    const auto wide = call_.q_tensor.options().dtype(at::kFloat);
    const auto& position = call_.options.position;
    if (call_.position == nullptr) return at::zeros({position ? call_.P : 0, position ? call_.D : 0}, wide);
    at::Tensor sum = at::zeros({call_.ages, call_.width}, wide);
    for_each_task(call_.ages / kTileRows, [&](int64_t block) {
      const int64_t n = kTileRows * call_.width;
      for (const auto& table : tables_) add_to(sum.mutable_data_ptr<float>() + block * n, table.data() + block * n, n);
    });
    return sum.narrow(0, 0, call_.P).narrow(1, 0, call_.D).mul(scale);
  }

 private:
  const TiledCall<T>& call_;
  std::vector<std::vector<float>> tables_;  // [group][ages][width]
};

}  // namespace lapse
