// One layer: attention over the memory table, and a feed-forward network.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lapse/forgetting/method.h"
#include "lapse/model/config.h"
#include "lapse/model/feed_forward.h"
#include "lapse/model/norm.h"

namespace lapse {

/// What one block asks of every layer.
struct BlockOptions {
  /// Of x [B, K, ...] the positions that are wanted: [P, ...], or x.
  at::Tensor wanted(const at::Tensor& x) const;

  /// Rows keep layer inputs and are projected anew with gradients; else keys and values are kept.
  bool training = false;
  bool observe = false;   ///< fill LayerReport
  at::Tensor lengths;     ///< [B] int64: tokens of each sample before the padding on its right; undefined: no padding
  at::Tensor places;      ///< [P] int64: the positions b K + t whose logits are wanted; undefined: all
  at::Tensor target;      ///< [B, K] int64: what is to be predicted, kNoTarget where nothing is; then `places` follow
  bool answers = false;   ///< with a target: fill Likelihood::right
  bool bfloat16 = false;  ///< in training: multiply in bfloat16 and sum in float32; everything else stays float32
};

/// A layer's random draws in a training block.
struct LayerDraws {
  double uniform = 1;    ///< Query::uniform
  uint64_t seed = 0;     ///< of the dropout
  bool dropped = false;  ///< layer drop: the table is updated, h and the cost are not
};

/// What a layer did in one block; filled if BlockOptions::observe.
struct LayerReport {
  double memory_sum = 0, memory_max = 0;  ///< |C_t| over all queries that are no padding
  int64_t queries = 0;                    ///< how many those are
  double deleted = 0;                     ///< fraction of the rows that the block could read, deleted after it
  Columns told;           ///< what the method tells of the block's own rows, padding's too: name -> [B, K]
  at::Tensor time, last;  ///< of all rows at the last query: time, and the greatest age at which it can be read; [N]

  double memory_mean() const { return queries > 0 ? memory_sum / static_cast<double>(queries) : 0; }
  /// Appends the report of the next timestep.
  void join(const LayerReport& next);
};

/// h = layer(h), post-norm or pre-norm (docs/equations.md, "The base model").
class Layer {
 public:
  /// `number`: this is layer 0, 1, ...
  Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, int64_t number,
        Random& random);

  /// h: [B, K, width]; start: [B] times of the first timestep. `table` gains the block's rows and loses those that
  /// expire. `cost` is a scalar, undefined if there is none. With options.places h becomes [P, width].
  struct Result {
    at::Tensor h, cost;
    LayerReport report;
  };
  Result forward(const at::Tensor& h, const at::Tensor& start, const at::Tensor& position, MemoryTable& table,
                 const BlockOptions& options, const LayerDraws& draws);

  /// The zero vectors that a sequence starts from (docs/equations.md, 11), at times -n ... -1.
  void begin(MemoryTable& table, int64_t rows, bool training) const;

  /// Rows of the table that a query at time next[b] can read: [N] bool.
  at::Tensor alive(const MemoryTable& table, const at::Tensor& next) const;
  /// What the method tells of the table's rows: name -> [N].
  Columns tell(const MemoryTable& table) const;

  NamedTensors parameters();
  /// For reading only: matrices, and with them rows' keys and values, in bfloat16; all else, the sums too, stays.
  void to_bfloat16();
  Method& method() { return *method_; }

 private:
  bool bfloat16() const;                         // whether to_bfloat16 was called
  at::Tensor normed(const at::Tensor& h) const;  // x: what attention reads
  /// What attention makes of h outside training, where it is kept.
  struct Projected {
    at::Tensor x;                  // [B, K, width]: h, normed if the norm comes first
    at::Tensor query, key, value;  // [B, K, H, D], query and key before their norms; query only if asked for
  };
  Projected project(const at::Tensor& h, bool query) const;
  /// The columns of new rows, without "time": of h in training, else of what was made of it.
  Columns columns(const at::Tensor& h, const Projected& own, bool training) const;
  Columns columns(const at::Tensor& h, bool training) const;
  void pool(MemoryTable& table, const at::Tensor& start, int64_t length, bool training) const;
  /// `fresh`: how many of each sample's newest rows have gradients.
  Rows rows(const MemoryTable& table, int64_t fresh = 0, bool bfloat16 = false) const;
  Reading read(const at::Tensor& h, const Projected& own, const at::Tensor& start, const at::Tensor& position,
               Rows& rows, const BlockOptions& options, const LayerDraws& draws) const;
  /// What follows attention, whose results side by side `attended` are [..., H D]: the layer's output [..., width].
  at::Tensor finish(const at::Tensor& h, const at::Tensor& attended, const BlockOptions& options,
                    const LayerDraws& draws) const;
  at::Tensor finish_few(const at::Tensor& h, const at::Tensor& attended) const;  // for few_rows, outside training
  void forget(MemoryTable& table, const Rows& rows, const at::Tensor& start, int64_t length,
              const BlockOptions& options, LayerReport& report) const;

  ModelConfig config_;
  ModelShape shape_;
  std::unique_ptr<Method> method_;
  at::Tensor query_, key_, value_, out_;  // [H D, width], [width, H D]
  Norm norm1_, norm2_, query_norm_, key_norm_;
  FeedForward feed_forward_;
};

}  // namespace lapse
