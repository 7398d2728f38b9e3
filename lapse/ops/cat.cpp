#include <ATen/ops/cat.h>

#include "lapse/ops/aten.h"

namespace lapse {

at::Tensor cat(at::TensorList tensors, int64_t dim) { return at::cat(tensors, dim); }

}  // namespace lapse
