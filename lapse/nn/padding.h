// Padded blocks without their padding: what each token costs is not spent on what is no token.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "lapse/memory/table.h"

namespace lapse {

/// Some of n rows. By default: all of however many there are; then nothing is copied.
class ChosenRows {
 public:
  ChosenRows() = default;
  /// Runs (begin, end) of rows, ascending and disjoint, of tensors on `device`.
  ChosenRows(const std::vector<std::pair<int64_t, int64_t>>& runs, int64_t n, at::Device device = at::kCPU);

  /// These rows of x [n, ...]: [m, ...]. Differentiable, once.
  at::Tensor of(const at::Tensor& x) const;
  /// x [m, ...] as these rows of [n, ...], where all others are 0. Differentiable, once.
  at::Tensor among_zeros(const at::Tensor& x) const;
  /// What numbers the rows [Q] int64 of the n have among these m; of others it says nothing.
  at::Tensor numbers(const at::Tensor& rows) const;

 private:
  struct Chosen;
  std::shared_ptr<const Chosen> chosen_;
};

/// Where a block [B, K] has tokens, and where padding on the right of its samples. A block without its padding is
/// [1, P, ...]: the P tokens of one sample after the other.
class Padding {
 public:
  Padding() = default;  ///< There is none.
  /// lengths [B] int64, best on the CPU: tokens of each sample of a block on `device`; undefined: K. Little padding is
  /// taken for none: to leave it out would take longer than it does.
  Padding(const at::Tensor& lengths, int64_t K, at::Device device = at::kCPU);

  explicit operator bool() const { return !lengths_.empty(); }

  /// x [B, K, ...] without padding; x itself if there is none.
  at::Tensor removed(const at::Tensor& x) const;
  /// x [1, P, ...] with zeros for padding: [B, K, ...]; x itself if there is none.
  at::Tensor restored(const at::Tensor& x) const;
  /// Positions b K + t [Q] int64 as numbers of the P tokens; of padding any. Undefined stays undefined.
  at::Tensor places(const at::Tensor& positions) const;

  /// How much of sample b is padding.
  int64_t of(int64_t b) const { return lengths_.empty() ? 0 : K_ - lengths_[b]; }
  /// The rows of a table that holds the block, without those of padding.
  ChosenRows rows(const MemoryTable& table) const;

 private:
  std::vector<int64_t> lengths_;  // empty: no padding
  int64_t K_ = 0;
  ChosenRows tokens_;  // of the block's B K positions
};

}  // namespace lapse
