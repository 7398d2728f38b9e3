// Attention over a layer's memory: projections, a forgetting method, and the table that both work on.
#pragma once

#include <memory>

#include "lapse/nn/norm.h"
#include "lapse/nn/projections.h"
#include "lapse/nn/sublayer.h"

namespace lapse {

/// W_o attention(W_q x, rows), where rows of the table have the keys W_k x and values W_v x of x = before(h).
class Attention : public Sublayer {
 public:
  /// `layer`: this is the attention of layer 0, 1, ...
  Attention(const MethodOptions& method, const ModelShape& shape, int64_t layer, const AttentionOptions& options,
            Norm before, Random& random);

  /// The block's rows come into pass.table before they are read, and pass.kept says which stay. With layer drop
  /// only that happens.
  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) override;

  /// The n zero vectors that a sequence starts from (docs/equations.md, 11), at times -n ... -1, for an empty table.
  void begin(MemoryTable& table, int64_t n, Stored stored) const;
  /// A table of projections, made with the present weights, of a table of inputs.
  MemoryTable projected(const MemoryTable& inputs) const;

  /// Rows of the table that have a weight for the query at time next[b], as memory sizes count them: [N] bool.
  at::Tensor alive(const MemoryTable& table, const at::Tensor& next) const;
  /// What the method tells of the table's rows: name -> [N].
  Columns tell(const MemoryTable& table) const;

  void name(NamedTensors& parameters);
  std::vector<at::Tensor*> matrices() override { return w_.matrices(); }
  Method& method() { return *method_; }
  const Method& method() const { return *method_; }
  Norm& before() { return before_; }

 private:
  /// What the block's own rows are made of, where keys and values are stored.
  struct Projected {
    at::Tensor x, query, key, value;  // [B, K, width] and, before their norms, [B, K, H D], without padding
  };
  Projected project(const at::Tensor& h, bool query) const;
  /// Method::describe.
  Columns described(const at::Tensor& x) const;
  /// Of new rows at these times [B, K], all that the table stores of them. `own`: without that padding.
  Columns columns(const at::Tensor& h, const at::Tensor& time, const at::Tensor& kind) const;
  Columns columns(const at::Tensor& h, const at::Tensor& time, const at::Tensor& kind, const Projected& own,
                  const Padding& padding = {}) const;
  void pool(LayerPass& pass, int64_t length) const;
  /// `fresh`: how many of each sample's newest rows have gradients; of them those of padding get zeros.
  Rows rows(const MemoryTable& table, Stored stored, int64_t fresh = 0, bool bfloat16 = false,
            const Padding& padding = {}) const;
  /// The block's rows, and what is pooled from older ones, come into the table.
  void remember(const at::Tensor& h, const Projected& own, LayerPass& pass) const;
  Reading read(const at::Tensor& h, const Projected& own, LayerPass& pass, const Rows& rows) const;
  /// Takes over what reading has changed: the method's columns, and when rows end. `ended`: episodes have shortened
  /// that already. Returns where it is sooner than before, [N] bool, if rows are reported and it was changed.
  at::Tensor settle(const Reading& reading, LayerPass& pass, Rows& rows, bool ended) const;
  bool forgets_at_once(const LayerPass& pass) const;  // whether no row may stay that no later query reads
  void forget(LayerPass& pass, const Rows& rows, const at::Tensor& ended, int64_t length) const;
  void report(LayerPass& pass, const Rows& rows, const at::Tensor& kept, int64_t length) const;

  ModelShape shape_;
  double dropout_;
  std::unique_ptr<Method> method_;
  Projections w_;
  Norm query_norm_, key_norm_, before_;
};

}  // namespace lapse
