#include "lapse/forgetting/method.h"

#include "lapse/core/error.h"
#include "lapse/memory/samples.h"
#include "lapse/ops/aten.h"

namespace lapse {

void MethodOptions::adopt(const MethodOptions& trained, const ModelShape&) {
  fail("a model trained with " + trained.name() + " cannot be read with " + name() + ", which must be trained");
}

at::Tensor seed_of(const Query& query) {
  return at::full({1}, static_cast<int64_t>(query.seed), query.start.options());
}

RampOptions ramp_options(const Query& query, const ModelShape& shape) {
  RampOptions options;
  set_common(options, query, shape);
  options.min_age = shape.min_age;
  return options;
}

AttentionInputs ramp_inputs(const Query& query, const Rows& rows) {
  at::Tensor until = rows.until;
  if (query.lengths.defined()) until = at::minimum(until, of_rows(rows.table, query.start + query.lengths));
  return {query.q, rows.key, rows.value, rows.table.offsets(), query.start, rows.table.time(), until};
}

}  // namespace lapse
