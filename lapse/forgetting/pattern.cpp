#include "lapse/forgetting/pattern.h"

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

RampOptions standard_options(const Query& query, const ModelShape& shape, int64_t max_span) {
  RampOptions options = ramp_options(query, shape);
  if (query.position.defined() && query.position.size(0) > max_span)
    options.position = query.position.narrow(0, 0, max_span);
  return options;
}

Reading Pattern::read(const Query& query, const Rows& rows) const {
  return {ramp_attention(ramp_inputs(query, rows), standard_options(query, shape_, max_span_)).out};
}

Tensor Window::last_age(const Tensor& time) const { return at::full_like(time, last_age_); }

Fields PatternOptions::reading_fields() { return {budget_field("layer")}; }

Field PatternOptions::budget_field(const std::string& holder) {
  return field("budget", budget_, "rows that every " + holder + " holds; 0: as the run's configuration says")
      .in(0, 1 << 24)
      .unit("rows");
}

void PatternOptions::adopt(const MethodOptions& trained, const ModelShape& shape) {
  positions_ = trained.positions(shape);
  initial_rows_ = trained.initial_rows(shape);
  max_span_ = trained.longest_single(shape);
  least_age_ = trained.least_age(shape);
}

std::unique_ptr<Method> PatternOptions::make(const ModelShape& shape, int64_t layer, Random&) const {
  return make_layer(as_read(shape), layer);
}

ModelShape PatternOptions::as_read(const ModelShape& shape) const {
  ModelShape read = shape;
  if (least_age_) read.min_age = *least_age_;
  return read;
}

Field PatternOptions::max_span_field() {
  return field("max_span", max_span_, "L: the greatest age that is read; ages 1 ... L have a position embedding")
      .in(1, 1 << 23)
      .unit("timesteps");
}

}  // namespace lapse
