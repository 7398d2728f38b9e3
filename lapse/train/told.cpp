#include "lapse/train/told.h"

#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/total.h"

namespace lapse {

at::Tensor sum_count_max(const at::Tensor& values) {
  const at::Tensor all = values.to(at::kDouble), none = all.isnan();
  return at::stack({total(at::where(none, 0, all)), at::logical_not(none).sum().to(at::kDouble),
                    at::where(none, -std::numeric_limits<double>::infinity(), all).max()});
}

}  // namespace lapse
