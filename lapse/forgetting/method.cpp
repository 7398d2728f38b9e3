#include "lapse/forgetting/method.h"

#include <ATen/ATen.h>

#include "lapse/core/error.h"

namespace lapse {

void MethodOptions::adopt(const MethodOptions& trained, const ModelShape&) {
  fail("a model trained with " + trained.name() + " cannot be read with " + name() + ", which must be trained");
}

RampOptions ramp_options(const Query& query, const ModelShape& shape) {
  RampOptions options;
  if (query.position.defined()) options.position = query.position;
  options.min_age = shape.min_age;
  options.dropout = query.dropout;
  if (query.dropout > 0) options.seed = query.seed;
  return options;
}

AttentionInputs ramp_inputs(const Query& query, const Rows& rows) {
  at::Tensor until = rows.until;
  if (query.lengths.defined())
    until = at::minimum(until, (query.start + query.lengths).index_select(0, rows.table.sample()));
  return {query.q, rows.key, rows.value, rows.table.offsets(), query.start, rows.table.time(), until};
}

}  // namespace lapse
