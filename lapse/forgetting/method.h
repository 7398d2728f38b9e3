// What a forgetting method is: how queries read rows, which rows they can read and until when, what that costs, and
// what is told of rows. It is all that differs between models.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lapse/core/config.h"
#include "lapse/core/random.h"
#include "lapse/memory/table.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"

namespace lapse {

/// What a method may know of the model around it.
struct ModelShape {
  int64_t layers, width, heads, head_dim;
  int64_t block;                           ///< K of training
  int64_t min_age = 1;                     ///< the least age that a query reads: 0 if tokens attend themselves
  bool normed_heads = false;               ///< q and k pass an RMSNorm over a head's features
  bool scaled = true;                      ///< logits are q . k / sqrt(D), not q . k
  std::string initialisation = "default";  ///< of linear maps (core/linear_weights.h)
};

/// A block of K queries per sample, as one layer asks them.
struct Query {
  at::Tensor x;         ///< [B, K, width]: the layer inputs that q comes from, as `describe` gets them
  at::Tensor q;         ///< [B, K, H, D]
  at::Tensor start;     ///< [B] int64: time of each sample's first query
  at::Tensor position;  ///< [P, D], the model's shared table of ages 1 ... P; undefined if the model has none
  at::Tensor lengths;   ///< [B] int64: queries of each sample before the padding on its right; undefined: no padding
  double uniform = 1;   ///< u of this block: one draw from U(0, 1) shared by all layers and samples; 1 without draws
  double dropout = 0;
  uint64_t seed = 0;    ///< of the dropout, differs between layers
  at::Tensor age_bias;  ///< [H, A]: added to logits of ages 0 ... A - 1, the last to older ones too; or undefined
};

/// What a table stores of each row.
enum class Stored {
  inputs,       ///< what the layer read: keys and values follow from it with the present weights, and learn from it
  projections,  ///< keys and values, made once: weights are fixed while this memory lasts
};

/// Rows as a method describes them, in a table or on their way there.
struct RowView {
  at::Tensor time, kind;     ///< [n] int64 and uint8 (RowKind)
  const Columns& described;  ///< what `describe` said of them, and the method's own columns
  Stored stored;
};

/// All rows that a block may read, the block's own (the newest K of each sample) included.
struct Rows {
  const MemoryTable& table;  ///< offsets, times and kinds
  at::Tensor key, value;     ///< [N, H, D]
  at::Tensor until;          ///< [N] int64: time of the first query that no longer reads the row
  Columns described;         ///< as in RowView
  Stored stored;

  RowView view() const { return {table.time(), table.kind(), described, stored}; }
};

struct Reading {
  at::Tensor out;  ///< [B, K, H, D]
  /// A scalar to add to the loss, already weighted; undefined if there is none. The mean over samples of what each
  /// would cost alone, without its padding (Query::lengths): how a batch is put together must not change it.
  at::Tensor cost = {};
  Columns state = {};     ///< new values [N, ...] of columns that Method::state named
  at::Tensor until = {};  ///< [N] int64: Rows::until, sooner where reading made rows go; undefined: as it was
};

/// Rows that stand for others.
struct PooledRows {
  at::Tensor hidden;  ///< [M, width]: layer inputs; undefined if there are none
  at::Tensor sample;  ///< [M] int64, on the CPU
  at::Tensor time;    ///< [M] int64; no pooled row of the sample has this time
};

/// A learned tensor and its name within the layer. The tensor is a leaf that its owner made and initialised.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor*>>;

/// The forgetting of one layer.
class Method {
 public:
  virtual ~Method() = default;

  /// Learned parameters.
  virtual NamedTensors parameters() { return {}; }
  /// Called after each optimiser step, to bring parameters back into their range.
  virtual void after_update() {}

  /// Columns of rows with layer inputs x [n, width], for instance the span of each: [n]. Must depend on each row alone.
  /// With Stored::inputs computed anew for every row in each block, with gradients; else once per row, and stored. No
  /// column, here or of `state`, is named time, kind, until, hidden, key or value: these are of every table.
  virtual Columns describe(const at::Tensor& x) const { return (void)x, Columns{}; }

  // Four times of a row, in this order if it is read at all: that of the first query that
  //   first            reads it,
  //   weightless_from  gives it no weight in any head: until then it counts as memory,
  //   until            does not read it,
  //   released         finds it deleted.

  /// Rows can be read by the queries at times first <= t < until: both [n] int64. The one place that says so: what is
  /// deleted and what is reported follow from it, and what attention reads: `until` as it is, `first` as a least age:
  /// it is a row's time + ModelShape::min_age, unless `read` gives the operator another (RampOptions::min_age).
  virtual at::Tensor first(const RowView& rows) const = 0;
  virtual at::Tensor until(const RowView& rows) const = 0;
  /// Rows::until, where that follows from a row's place among the others: `until` is then when it goes at the latest.
  virtual at::Tensor until_among(const Rows& rows) const { return rows.until; }
  /// When rows may leave the table, given their `until` [n]: later, where an update of the weights may still put that
  /// off.
  virtual at::Tensor released(const at::Tensor& until, Stored stored) const { return (void)stored, until; }
  /// For memory sizes |C_t|: as `until`, but the time from which a row has no weight any more for any head.
  virtual at::Tensor weightless_from(const Rows& rows) const { return rows.until; }

  /// Columns [shape] of the method's own, as new rows have them; `read` gives them new values. They carry no gradients
  /// and are stored whatever else is. `real`: the model's dtype.
  virtual Columns state(at::IntArrayRef shape, const at::TensorOptions& real) const {
    return (void)shape, (void)real, Columns{};
  }

  /// Whether the method has `pool`: the table then keeps layer inputs (the column "hidden") beside projections too.
  virtual bool pools() const { return false; }
  /// New rows made of old ones, which come into the table before queries start[b] ... start[b] + length - 1 read it;
  /// start: [B] int64 on the CPU. Queries before those have read, with their pooled rows, and the block's own rows are
  /// in the table.
  virtual PooledRows pool(const MemoryTable& table, const at::Tensor& start, int64_t length) const {
    return (void)table, (void)start, (void)length, PooledRows{};
  }

  /// Times, ascending, of pooled zero vectors that a stream starts with, before its MethodOptions::initial_rows.
  virtual std::vector<int64_t> initial_slots() const { return {}; }

  /// Whether, with Stored::projections, queries must come one at a time, and rows be deleted after each: where what a
  /// query reads decides what the next may.
  virtual bool one_by_one() const { return false; }

  /// How queries read rows, and, where gradients flow (at::GradMode), what that costs.
  virtual Reading read(const Query& query, const Rows& rows) const = 0;

  /// What an observer may see of each row: name -> [N], for instance "span".
  virtual Columns tell(const Rows& rows) const { return (void)rows, Columns{}; }
  /// And of each query and row, where all samples have equally many rows n: name -> [B, K, n], for instance "masking".
  virtual Columns tell_pairs(const Query& query, const Rows& rows) const { return (void)query, (void)rows, Columns{}; }
};

/// A method's configuration, and the factory of its layers. One whose rows can be limited is also a BudgetOptions
/// (forgetting/budgets.h).
class MethodOptions {
 public:
  virtual ~MethodOptions() = default;

  // --- the configuration
  virtual std::string name() const = 0;
  /// Keys of the method's section of the configuration file.
  virtual Fields fields() = 0;
  /// Error if the options contradict each other or the model.
  virtual void check(const ModelShape&) const {}
  /// Error if a run should not begin with these options: what runs of earlier versions may have, and `check` lets pass.
  virtual void check_new(const ModelShape&) const {}

  // --- what a model needs
  /// The greatest age at which a row can be read.
  virtual int64_t longest(const ModelShape& shape) const = 0;
  /// The same of rows that stand for one timestep each: how far back a method that takes this one's place may read.
  virtual int64_t longest_single(const ModelShape& shape) const { return longest(shape); }
  /// The least age at which a row is read: 0 if tokens attend themselves.
  virtual int64_t least_age(const ModelShape& shape) const { return shape.min_age; }
  /// Rows of the position table: ages 1 ... P have an embedding.
  virtual int64_t positions(const ModelShape& shape) const = 0;
  /// Zero vectors at ages n ... 1 that a sequence starts from (docs/equations.md, 11).
  virtual int64_t initial_rows(const ModelShape& shape) const = 0;
  /// Whether in training a block is read with what was drawn for it (BlockDraws): read again, it gives other outputs.
  virtual bool draws_in_training() const { return false; }
  /// The forgetting of layer 0, 1, ... `random` is for the first values of parameters alone: a checkpoint is read with
  /// another stream, and any other number drawn here would then be a different one. What a method draws for a row is a
  /// hash (mix64) of the row's time and of an option, such as a seed.
  virtual std::unique_ptr<Method> make(const ModelShape& shape, int64_t layer, Random& random) const = 0;

  // --- reading a trained model: of a copy of the run's options, which stay as they are
  /// Options of `lapse eval` and `lapse generate` (max_span becomes --max-span), none of them named as a flag of a verb
  /// is.
  virtual Fields reading_fields() { return {}; }
  /// Whether the method has no weights, so that it can read a model that was trained with another method.
  virtual bool adopts() const { return false; }
  /// Takes over what such a model's weights depend on. Error if this method has weights of its own.
  virtual void adopt(const MethodOptions& trained, const ModelShape& shape);
};

/// The seed as operators take it: [1] int64, where the queries are.
at::Tensor seed_of(const Query& query);

/// What both attention operators take from the query and the model.
template <class Options>
void set_common(Options& options, const Query& query, const ModelShape& shape) {
  if (query.position.defined()) options.position = query.position;
  if (query.age_bias.defined()) options.age_bias = query.age_bias;
  if (!shape.scaled) options.scale = 1;
  options.dropout = query.dropout;
  if (query.dropout > 0) options.seed = seed_of(query);
}

/// What every reading by ramp_attention takes from the query.
RampOptions ramp_options(const Query& query, const ModelShape& shape);

/// The operator's view of a block and its rows, each until its time or the sample's padding: that reads nothing.
AttentionInputs ramp_inputs(const Query& query, const Rows& rows);

}  // namespace lapse
