// What methods share that keep rows by their time alone: windows, sinks, every n-th row. Attention over them is
// standard.
#pragma once

#include <algorithm>
#include <optional>

#include "lapse/forgetting/method.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {

/// The greatest age in a window of so many of the newest rows that a query may read.
inline int64_t window_age(const ModelShape& shape, int64_t rows) { return rows - 1 + shape.min_age; }

/// Standard attention, in which only ages 1 ... L have a position embedding: a model's table may go on with embeddings
/// of something else.
RampOptions standard_options(const Query& query, const ModelShape& shape, int64_t max_span);

/// Standard attention over rows of age up to last_age(time of the row).
class Pattern : public Method {
 public:
  Pattern(const ModelShape& shape, int64_t max_span) : max_span_(max_span), shape_(shape) {}

  Reading read(const Query& query, const Rows& rows) const override;
  at::Tensor first(const RowView& rows) const override { return shifted(rows.time, shape_.min_age); }
  at::Tensor until(const RowView& rows) const override { return rows.time + last_age(rows.time) + 1; }

  int64_t window_age(int64_t rows) const { return lapse::window_age(shape_, rows); }

 protected:
  /// The greatest age at which rows of these times are read: [N] int64. Where that follows from a row's place among the
  /// others (`until_among`), the greatest that is possible.
  virtual at::Tensor last_age(const at::Tensor& time) const = 0;

  int64_t max_span_;  ///< L

 private:
  ModelShape shape_;
};

/// A window: every row is read up to the same age.
class Window : public Pattern {
 public:
  Window(const ModelShape& shape, int64_t max_span, int64_t last_age)
      : Pattern(shape, max_span), last_age_(std::min(last_age, max_span)) {}

 protected:
  at::Tensor last_age(const at::Tensor& time) const override;

 private:
  int64_t last_age_;
};

/// Options of a method that has no weights of its own and so can read any model: it takes over the trained method's
/// positions, how far back that reads, what it starts from, and whether tokens attend themselves.
class PatternOptions : public MethodOptions {
 public:
  Fields reading_fields() override;
  void adopt(const MethodOptions& trained, const ModelShape& shape) override;
  bool adopts() const override { return true; }
  int64_t longest(const ModelShape&) const override { return max_span_; }
  int64_t positions(const ModelShape&) const override { return positions_ > 0 ? positions_ : max_span_; }
  int64_t initial_rows(const ModelShape&) const override { return initial_rows_; }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t layer, Random&) const final;

 protected:
  virtual std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t layer) const = 0;
  Field max_span_field();
  Field budget_field(const std::string& holder);      ///< --budget: of every layer, head, ...
  ModelShape as_read(const ModelShape& shape) const;  ///< tokens attend themselves if they did in training
  /// The rows a layer may hold, the current one included; `otherwise` without --budget.
  int64_t budget_or(int64_t otherwise) const { return budget_ > 0 ? budget_ : otherwise; }

  int64_t max_span_ = 512, budget_ = 0;

 private:
  int64_t positions_ = 0, initial_rows_ = 0;  // of the model that was adopted
  std::optional<int64_t> least_age_;
};

}  // namespace lapse
