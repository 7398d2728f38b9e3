#include "lapse/ops/dense/narrow.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cstring>

#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/parallel/scratch.h"

namespace lapse {
namespace {

using at::native::cpublas::brgemm;

// Rows are cut into so many groups, each with sums of its own, whatever the number of threads.
constexpr int64_t kGroups = 16;
constexpr int64_t kMostElements = 1 << 15;  // of a weight: its sums and tiles then stay in a core's cache
constexpr int64_t kStep = 16;               // sizes are multiples of it

/// One group of rows.
class Group {
 public:
  Group(const NarrowLayer& layer, bool turn_x, float* sums) : l_(layer), turn_x_(turn_x), sums_(sums) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    int64_t widest = layer.k;
    for (const auto& p : layer.products) widest = std::max(widest, p.n);
    x_ = scratch.take<float>(kPanel * layer.k);
    dx_ = scratch.take<float>(kPanel * layer.k);
    dy_ = scratch.take<float>(kPanel * widest);
    turned_ = scratch.take<float>(kPanel * widest);
  }

  /// Adds rows begin ... begin + count - 1, at most kPanel.
  void add(int64_t begin, int64_t count) {
    const float* x = padded(l_.x + begin * l_.k, l_.k, count, x_);
    if (turn_x_) transpose(x, l_.k, turned_, kPanel, kPanel, l_.k);
    float* dx = l_.dx != nullptr && wants_dx(begin, count) ? (count == kPanel ? l_.dx + begin * l_.k : dx_) : nullptr;
    float* sum = sums_;
    for (const auto& p : l_.products) {
      const float* dy = gradient(p, begin, count);
      if (dx != nullptr) brgemm(kPanel, l_.k, p.n, p.n, l_.k, l_.k, &p != &l_.products[0], dy, p.weight, dx, false);
      if (p.dweight != nullptr) add_to_weight(x, dy, p.n, sum);
      sum += p.n * l_.k;
      if (l_.dbias != nullptr) add_to_bias(dy, p.n, count, sum);
    }
    first_ = false;
    if (dx == dx_) std::memcpy(l_.dx + begin * l_.k, dx, count * l_.k * sizeof(float));
    if (dx == nullptr && l_.dx != nullptr) std::fill_n(l_.dx + begin * l_.k, count * l_.k, 0.f);
  }

 private:
  bool wants_dx(int64_t begin, int64_t count) const {
    const auto after = std::partition_point(l_.rows.begin(), l_.rows.end(), [&](auto& r) { return r.end <= begin; });
    return after != l_.rows.end() && after->begin < begin + count;
  }

  /// kPanel lines, those after `count` zero.
  static const float* padded(const float* from, int64_t n, int64_t count, float* room) {
    if (count == kPanel) return from;
    std::copy_n(from, count * n, room);
    std::fill(room + count * n, room + kPanel * n, 0.f);
    return room;
  }

  const float* gradient(const NarrowProduct& p, int64_t begin, int64_t count) const {
    const float* dy = p.dy + begin * p.n;
    if (l_.relu == nullptr) return padded(dy, p.n, count, dy_);
    where_positive(dy, l_.relu + begin * p.n, l_.scale, dy_, count * p.n);
    std::fill(dy_ + count * p.n, dy_ + kPanel * p.n, 0.f);
    return dy_;
  }

  /// dy^T x, or its transposed x^T dy, if x is turned.
  void add_to_weight(const float* x, const float* dy, int64_t n, float* sum) {
    if (turn_x_) return brgemm(l_.k, n, kPanel, kPanel, n, n, !first_, turned_, dy, sum, false);
    transpose(dy, n, turned_, kPanel, kPanel, n);
    brgemm(n, l_.k, kPanel, kPanel, l_.k, l_.k, !first_, turned_, x, sum, false);
  }

  void add_to_bias(const float* dy, int64_t n, int64_t count, float* sum) const {
    if (first_) std::fill_n(sum, n, 0.f);
    for (int64_t i = 0; i < count; ++i) lapse::add_to(sum, dy + i * n, n);
  }

  const NarrowLayer& l_;
  const bool turn_x_;
  float *sums_, *x_, *dx_, *dy_, *turned_;
  bool first_ = true;
};

/// The sum of the groups' sums, in order, to the first of them.
void join(float* sums, int64_t groups, int64_t n) {
  constexpr int64_t kPiece = 4096;
  for_each_task((n + kPiece - 1) / kPiece, [&](int64_t task) {
    const int64_t at = task * kPiece, count = std::min(kPiece, n - at);
    for (int64_t g = 1; g < groups; ++g) add_to(sums + at, sums + g * n + at, count);
  });
}

}  // namespace

bool narrow(int64_t m, int64_t k, const std::vector<int64_t>& n) {
  return k % kStep == 0 && std::all_of(n.begin(), n.end(), [&](int64_t each) {
           return each % kStep == 0 && each * k <= kMostElements && m >= 4 * std::max(each, k);
         });
}

void narrow_gradients(const NarrowLayer& layer) {
  int64_t columns = 0;
  for (const auto& p : layer.products) columns += p.n;
  const int64_t pieces = (layer.m + kPanel - 1) / kPanel, groups = std::min(kGroups, pieces);
  const int64_t each = columns * layer.k + (layer.dbias != nullptr ? columns : 0);
  const bool turn_x = layer.k < columns;  // one operand of dy^T x must be turned: the one with fewer columns
  at::Tensor room = empty_rows({groups, each});
  float* sums = room.mutable_data_ptr<float>();
  for_each_task(groups, [&](int64_t g) {
    Group group(layer, turn_x, sums + g * each);
    for (int64_t i = pieces * g / groups; i < pieces * (g + 1) / groups; ++i)
      group.add(i * kPanel, std::min(kPanel, layer.m - i * kPanel));
  });
  join(sums, groups, each);
  for (const auto& p : layer.products) {
    if (p.dweight != nullptr && turn_x)
      transpose(sums, p.n, p.dweight, layer.k, layer.k, p.n);
    else if (p.dweight != nullptr)
      std::copy_n(sums, p.n * layer.k, p.dweight);
    sums += p.n * layer.k;
    if (layer.dbias != nullptr) std::copy_n(sums, p.n, layer.dbias);
  }
}

}  // namespace lapse
