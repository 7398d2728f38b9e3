// The memory of one layer: a table with one row per remembered timestep. It knows no forgetting method.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lapse/memory/row_kind.h"

namespace lapse {

/// Named tensors whose leading dimension is rows ([N, ...]), or a block's ([B, K, ...]).
using Columns = std::map<std::string, at::Tensor>;

/// Rows of B samples, packed and ragged: sample b owns rows offsets[b] ... offsets[b+1]-1; offsets[0] = 0 and nothing
/// is padded to the longest sample. A sample's pooled rows come first, by ascending time; then all its others, by
/// ascending time. Every column has N = offsets[B] rows, and all move together. "time" and "kind" are columns that are
/// always there; the others are whatever `append` brings, the same at every call, and on its device. Copies are cheap,
/// and independent.
///
/// After `reserve` a sample's last rows may be spare: RowKind::spare at kSpareTime, 0 in every other column of one
/// number a row, anything in wider ones. They count as rows, but no query sees them: their time is after every query's,
/// and an `until` of 0 before every next one's. `append` puts new rows in their place.
class MemoryTable {
 public:
  explicit MemoryTable(int64_t samples = 0);

  int64_t samples() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t rows() const { return offsets_.back(); }
  int64_t rows_of(int64_t sample) const { return offsets_[sample + 1] - offsets_[sample]; }
  int64_t first_row(int64_t sample) const { return offsets_[sample]; }  ///< sample B: the number of rows
  int64_t last_row(int64_t sample) const;                               ///< that is not spare
  at::Tensor offsets() const;                                           ///< [B + 1] int64 on the CPU, to read
  at::Tensor sample() const;                                            ///< [N] int64: the sample of each row
  const at::Tensor& time() const { return column("time"); }             ///< [N] int64
  const at::Tensor& kind() const { return column("kind"); }             ///< [N] uint8: RowKind
  const at::Tensor& column(const std::string& name) const;              ///< [N, ...]; c10::Error if absent
  const Columns& columns() const { return columns_; }

  /// K new rows per sample, after its older rows. block: [B, K, ...] each, with "time" and "kind". Differentiable:
  /// gradients flow into the block's tensors, and into older rows until `detach`. Without gradients the columns of one
  /// sample, and of several after `reserve`, grow in place, so that a stream costs what it adds; tensors taken from the
  /// table before keep their rows and values. c10::Error, and the table as it was, if the columns do not fit.
  void append(Columns block);

  /// Makes room for at least so many more rows of each sample, unless it is there. From then on the table has room: it
  /// makes more when that is full, by at least a quarter of the longest sample. Without gradients only. A single sample
  /// grows in place anyway, on the CPU.
  void reserve(int64_t more);
  /// Spare rows of the sample that has the fewest.
  int64_t room() const;

  /// For a graph (lapse/ops/graph.h) that appends a row to each sample, where there is room: while this is on, rows and
  /// new values of columns go where the old ones are, whoever else holds them.
  void write_in_place(bool on) { in_place_ = on; }
  /// What such a graph depends on, besides shapes: the addresses that it uses, and where samples begin. Empty if
  /// somebody else holds a column, or there is no room.
  std::vector<const void*> addresses() const;
  /// A graph has appended a row to each sample: what is known of that on the host. Taken back where it has not.
  void count_row(bool taken_back = false);

  /// How many rows of samples 0 ... b - 1 have a mask ([N] bool) that is true, for each b: [B + 1] int64, where the
  /// rows are.
  at::Tensor counted(const at::Tensor& mask) const;

  /// Deletes the rows where mask ([N] bool) is false, and releases what they held. Of spare rows the mask says nothing.
  void keep(const at::Tensor& mask);
  /// The same in several tables, on one device: the host waits for a GPU once, and learns how many rows each has left.
  struct Sieve {
    MemoryTable* table;
    at::Tensor mask;
  };
  static void keep(c10::ArrayRef<Sieve> all);

  /// New values [N, ...] of a column, without gradients. c10::Error if there is no such column, or its rows are others.
  void replace(const std::string& name, const at::Tensor& values);

  /// M rows at their places: sample [M] int64 on the CPU, and columns [M, ...], the table's own with "time" and "kind".
  /// No row of the sample, pooled or not as the new one is, may have the same time. Differentiable as `append`;
  /// c10::Error if the columns do not fit.
  void insert(const at::Tensor& sample, const Columns& rows);

  /// How many rows have come since `keep` was last called.
  int64_t unsifted() const { return unsifted_; }

  /// Deletes all rows of these samples. Where there is room, they cost no more than their own rows. A model's stream
  /// that begins anew needs more: Transformer::reset.
  void reset(c10::ArrayRef<int64_t> samples);

  void detach();
  void to(at::Device device);

  /// Bytes held by the columns' storage, slack and spare rows included.
  int64_t bytes() const;

  /// A table from saved parts: offsets [B + 1] int64, columns with "time" and "kind", and its `unsifted`. Spare rows
  /// are left out. c10::Error if the parts do not fit together.
  static MemoryTable restore(const at::Tensor& offsets, Columns columns, int64_t unsifted = 0);

 private:
  /// Whether this table may write into the slack behind its columns: a copy, which shares that, may not.
  class Ownership {
   public:
    Ownership() = default;
    Ownership(const Ownership&) {}
    Ownership(Ownership&&) = default;
    Ownership& operator=(const Ownership&) { return owned_ = false, *this; }
    Ownership& operator=(Ownership&&) = default;
    void take() { owned_ = true; }
    explicit operator bool() const { return owned_; }

   private:
    bool owned_ = false;
  };

  void check(const Columns& block, int64_t K) const;
  void check_rows(const Columns& rows, int64_t leading) const;
  bool has_slack(const at::Tensor& old, const at::Tensor& block) const;
  at::Tensor grown(const at::Tensor& old, const at::Tensor& block) const;
  void keep(const at::Tensor& wanted, const int64_t* before);

  // With room (memory/room.cpp).
  void lay_out(const at::Tensor& numbers, std::vector<int64_t> held);
  void fill(const Columns& block, int64_t K);
  void find_places();
  void forget_places();
  void clear(int64_t sample);
  void compact();

  std::vector<int64_t> offsets_;
  int64_t growth_ = 0;         // with room: spare rows of each sample where it is made anew, at least; else 0
  std::vector<int64_t> held_;  // with room: each sample's rows without the spare ones; else empty
  int64_t unsifted_ = 0;
  // With room, not on the CPU: where each sample's next row goes, [B] int64, and on a GPU the offsets in pinned memory.
  at::Tensor places_, pinned_offsets_;
  bool in_place_ = false;
  Ownership slack_;
  Columns columns_;  // each a view of N rows; for one sample its storage may hold more: slack
};

}  // namespace lapse
