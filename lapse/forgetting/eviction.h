// What methods share that evict rows by the attention they receive, one query at a time.
#pragma once

#include <algorithm>
#include <functional>

#include "lapse/forgetting/pattern.h"

namespace lapse {

/// Who chooses the rows that go.
enum class Chooses {
  layer,  ///< all heads of a layer together
  head,   ///< each head for itself: it no longer reads a row that others may hold
};

/// Rows that a budget leaves beside the next query's own, which counts where tokens attend themselves.
inline int64_t room_beside(const ModelShape& shape, int64_t budget) { return budget - (shape.min_age == 0 ? 1 : 0); }

/// Standard attention over all rows held; after each query at most `budget` of them stay for the next, its own
/// included. A row that no head holds any more leaves the table. For inference: training reads everything up to
/// max_age.
class Eviction : public Method {
 public:
  Eviction(const ModelShape& shape, int64_t budget, int64_t max_age, Chooses chooses)
      : shape_(shape), budget_(budget), max_age_(max_age), by_head_(chooses == Chooses::head) {}

  bool one_by_one() const override { return true; }
  Columns state(at::IntArrayRef shape, const at::TensorOptions& real) const override;
  Reading read(const Query& query, const Rows& rows) const override;
  at::Tensor first(const RowView& rows) const override { return shifted(rows.time, shape_.min_age); }
  at::Tensor until(const RowView& rows) const override { return rows.time + max_age_ + 1; }
  Columns tell(const Rows& rows) const override;

 protected:
  /// The new scores of rows, [N] or by head [N, H], given the old ones and what the newest query's heads gave each row
  /// [N, H].
  virtual at::Tensor score(const at::Tensor& before, const at::Tensor& received) const = 0;
  /// How many of the newest rows are never dropped, the query's own included; at least 1: where tokens do not attend
  /// themselves, no query has read the newest row yet.
  virtual int64_t safe(int64_t budget) const = 0;

 private:
  /// Rows that the budget drops end with the query at time now[b]; by head they get a logit that no softmax sees.
  void evict(const Rows& rows, const at::Tensor& now, Reading& reading) const;
  /// The same by operators of libtorch's, for a GPU, which the host does not wait for.
  void evict_there(const Rows& rows, const at::Tensor& now, Reading& reading) const;

  int64_t room() const { return room_beside(shape_, budget_); }  ///< rows that each chooser may hold
  /// Of them never dropped.
  int64_t newest() const { return std::min(room(), room_beside(shape_, safe(budget_))); }

  ModelShape shape_;
  int64_t budget_, max_age_;
  bool by_head_;
};

/// `make`: a layer from its shape, budget and greatest age.
std::unique_ptr<MethodOptions> eviction_options(
    const std::string& name, Chooses chooses,
    std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)> make);

}  // namespace lapse
