// What one block of tokens asks of every layer, and what the layers say of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lapse/forgetting/method.h"
#include "lapse/nn/padding.h"

namespace lapse {

/// What a report says of each query and row of a block that is read from empty memory.
enum class Pairs {
  none,
  weights,  ///< of attention: "weights" [B, H, K, K]
  told,     ///< by the method, Method::tell_pairs: name -> [B, 1, K, K]
  reads,    ///< of attention, whatever the memory held: "weights" [1, H, K, n] of the n rows of one sample
};

/// What one block asks of every layer.
struct BlockOptions {
  /// Of x [B, K, ...] the positions whose logits are asked for: [P, ...], or x.
  at::Tensor at_places(const at::Tensor& x) const;

  bool observe = false;       ///< fill LayerReport
  bool rows = false;          ///< fill LayerReport::rows, and nothing else of it: costs next to nothing
  Pairs pairs = Pairs::none;  ///< fill LayerReport::pairs
  /// Delete rows at once when no later query reads them. Else, with few queries a block, they may stay for a while:
  /// they take room, and change results by no more than rounding. When they go depends on how many tokens a call reads.
  bool exact = false;
  /// [B] int64, best on the CPU: tokens of each sample before the padding on its right; undefined: no padding. What a
  /// model says of padding, its logits for instance, means nothing.
  at::Tensor lengths;
  /// [B, K] bool: an episode begins here, and nothing before it is read; undefined: nowhere. May stay on the CPU.
  at::Tensor begins;
  at::Tensor places;  ///< [P] int64: the positions b K + t whose logits are asked for; undefined: all
  at::Tensor target;  ///< [B, K] int64: what is to be predicted, kNoTarget where nothing is; then `places` follow.
                      ///< Best on the CPU: a GPU would be waited for
  at::Tensor source;  ///< [B, S] int64: what the encoder of a model that has one is to read; undefined: read before
  at::Tensor source_lengths;  ///< [B] int64: of the source, as `lengths`
  bool answers = false;       ///< with a target: fill Likelihood::right
  bool each = false;          ///< with a target: fill Likelihood::each
  bool bfloat16 = false;      ///< with Stored::inputs: multiply in bfloat16 and sum in float32; all else stays float32
};

/// When the tokens of a block are: the same for every layer.
struct BlockTimes {
  BlockTimes(const at::Tensor& clock, int64_t length, const at::Tensor& begins);

  at::Tensor start;  ///< [B] int64: of the first token
  at::Tensor time;   ///< [B, K] int64
  at::Tensor kind;   ///< [B, K] uint8: RowKind::token or RowKind::first
  /// Of a block of one token the samples whose episode begins: they lose their rows before the token comes.
  std::vector<int64_t> begun;

  /// `start` on the CPU; the host waits for a GPU at the first call.
  const at::Tensor& start_on_host() const;

  /// Of each row of a table that holds the block [N] int64: when an episode that begins in the block hides it; kNever.
  /// Undefined if none does, `begun` aside.
  at::Tensor ended(const MemoryTable& table) const;

 private:
  mutable at::Tensor on_host_;
  at::Tensor
      next_;  // [B, K + 1]: when the first episode begins that begins at column j or later; undefined if none does
};

/// A layer's random draws in a block.
struct LayerDraws {
  double uniform = 1;              ///< Query::uniform
  std::optional<uint64_t> seed{};  ///< of the dropout; none: no dropout
  bool dropped = false;            ///< layer drop: the table is updated, h and the cost are not
};

/// What the last query of a block saw of each row of the table, spare rows included. Views, not copies: whoever keeps
/// them makes the table's next rows cost a copy.
struct SeenRows {
  at::Tensor time, kind;    ///< [N] int64 and uint8
  at::Tensor first, until;  ///< [N] int64: queries at first <= t < until can read the row (weightless_from)
  at::Tensor cut;           ///< [N] bool: this query's reading made the row go before its time; undefined: none
  Columns told;             ///< Method::tell: name -> [N]
};

/// What a layer did in one block; filled if BlockOptions::observe.
struct LayerReport {
  at::Tensor counts;                      ///< [5] int64: the first five numbers below, until `count` has read them
  double memory_sum = 0, memory_max = 0;  ///< |C_t| over all queries that are no padding
  int64_t queries = 0;                    ///< how many those are
  int64_t readable = 0, deleted = 0;      ///< rows that the block could read, and of them those deleted after it
  at::Tensor sizes;                       ///< |C_t| of each query, padding's too: [B, K] int64
  Columns told;                  ///< what the method tells of the block's own rows: name -> [B, K], NaN for padding
  at::Tensor time, kind, until;  ///< of all rows at the last query [N]; until: Method::weightless_from
  Columns pairs;                 ///< of queries and rows that are tokens of the block; see Pairs
  SeenRows rows;                 ///< with BlockOptions::rows

  double memory_mean() const { return queries > 0 ? memory_sum / static_cast<double>(queries) : 0; }
  /// Appends the report of the next timestep.
  void join(const LayerReport& next);
};

/// Reads LayerReport::counts of all layers at once.
void count(std::vector<LayerReport>& reports);

/// What attention knows of how old rows are.
struct Ages {
  at::Tensor position;  ///< [P, D]: embeddings of ages 1 ... P; undefined if the model has none
  at::Tensor bias;      ///< [H, A]: bias_by_age (nn/buckets.h); undefined if the model has none
};

/// What an encoder made of the samples' sources, as one layer reads it.
struct SourceRows {
  at::Tensor key, value;  ///< [N, H, D]: of tokens that are no padding
  at::Tensor offsets;     ///< [B + 1] int64, on the CPU: each sample's rows
  at::Tensor time;        ///< [N] int64
};

/// One layer's share of a block on its way through the layer's parts.
struct LayerPass {
  const BlockTimes& times;
  const BlockOptions& options;
  const Ages& ages;
  Stored stored;       ///< what `table` holds
  MemoryTable& table;  ///< gains the block's rows; loses, by `kept`, those that expire
  LayerDraws draws = {};
  Padding padding = {};                ///< what the layer's h is without: [1, P, width] instead of [B, K, width]
  const SourceRows* source = nullptr;  ///< null: the layer reads no source
  at::Tensor cost = {};                ///< the method's: a scalar, undefined if there is none
  at::Tensor kept = {};                ///< [N] bool: rows that are to stay in `table`; undefined: all
  LayerReport report = {};
};

}  // namespace lapse
