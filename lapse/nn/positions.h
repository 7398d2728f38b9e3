// Where a token stands, learned: by the ages of rows, by buckets of ages, or by times (model.positions).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/core/random.h"
#include "lapse/nn/block.h"

namespace lapse {

/// What the size of the table of positions depends on.
struct PositionSizes {
  int64_t width, heads, head_dim;
  int64_t ages;             ///< that have a position of their own, Method::positions
  int64_t block;            ///< K of training
  int64_t bucket_distance;  ///< ages from here on share a bucket
  bool both_ways = false;   ///< rows may lie after a query, as in an encoder
};

/// One learned table, and who reads it: the embedding, or attention.
class Positions {
 public:
  explicit Positions(at::Tensor table) : table_(std::move(table)) {}
  virtual ~Positions() = default;
  Positions(const Positions&) = delete;

  /// The longest stream that can be read; 0: any.
  virtual int64_t context() const { return 0; }
  /// Embeddings h [B, K, width] of tokens, the first of each stream at time clock[b] ([B] int64), with the positions of
  /// these times: [B, K, width]. Times must be within the context.
  virtual at::Tensor added_to(const at::Tensor& h, const at::Tensor& clock) const;
  /// For attention.
  virtual Ages ages() const { return {}; }
  virtual void to_bfloat16() {}  ///< Transformer::to_bfloat16
  at::Tensor& table() { return table_; }

 protected:
  at::Tensor table_;
};

/// model.positions.
struct PositionKind {
  std::string name, help;
  std::unique_ptr<Positions> (*make)(const PositionSizes& sizes, Random& random);
  bool windows = false;    ///< streams end: only for windows
  bool both_ways = false;  ///< a query may be older than a row
  bool bucketed = false;   ///< ages share buckets: PositionSizes::bucket_distance
};
const std::vector<PositionKind>& position_table();
/// Error if there is none of this name.
const PositionKind& position_kind(const std::string& name);

}  // namespace lapse
