#include "lapse/nn/projections.h"

#include <cmath>

#include "lapse/ops/dense/few_rows.h"

namespace lapse {

Projections::Projections(const ModelShape& shape, const AttentionOptions& o, Random& random)
    : heads_(shape.heads),
      head_dim_(shape.head_dim),
      query(shape.heads * shape.head_dim, shape.width, false, o.initialisation, random,
            shape.scaled ? 1 : std::sqrt(static_cast<double>(shape.head_dim))),
      key(shape.heads * shape.head_dim, shape.width, false, o.initialisation, random),
      value(shape.heads * shape.head_dim, shape.width, false, o.initialisation, random),
      out(shape.width, shape.heads * shape.head_dim, false, o.initialisation, random, o.divisor) {}

at::Tensor Projections::heads(const at::Tensor& x) const {
  c10::SmallVector<int64_t, 4> shape(x.sizes());
  shape.back() = heads_, shape.push_back(head_dim_);
  return reshaped(x, shape);
}

void Projections::name(const std::string& prefix, NamedTensors& parameters) {
  query.name(prefix + "query", parameters, /*bare=*/true);
  key.name(prefix + "key", parameters, /*bare=*/true);
  value.name(prefix + "value", parameters, /*bare=*/true);
  out.name(prefix + "out", parameters, /*bare=*/true);
}

}  // namespace lapse
