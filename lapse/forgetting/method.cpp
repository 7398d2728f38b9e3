#include "lapse/forgetting/method.h"

#include <ATen/ATen.h>

namespace lapse {

at::Tensor Method::keep(const Rows& rows, const at::Tensor& next) const {
  return next - rows.table.time() <= last_age(rows);
}

}  // namespace lapse
