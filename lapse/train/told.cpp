#include "lapse/train/told.h"

#include <limits>

#include "lapse/ops/aten.h"

namespace lapse {

at::Tensor sum_count_max(const at::Tensor& values) {
  const at::Tensor all = values.to(at::kDouble), none = all.isnan();
  return at::stack({at::where(none, 0, all).sum(), at::logical_not(none).sum().to(at::kDouble),
                    at::where(none, -std::numeric_limits<double>::infinity(), all).max()});
}

}  // namespace lapse
