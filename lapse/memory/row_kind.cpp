#include "lapse/memory/row_kind.h"

#include "lapse/ops/aten.h"

namespace lapse {

at::Tensor is_kind(const at::Tensor& kinds, RowKind kind) { return kinds == static_cast<int64_t>(kind); }

at::Tensor is_token(const at::Tensor& kinds) { return kinds <= static_cast<int64_t>(RowKind::first); }

}  // namespace lapse
