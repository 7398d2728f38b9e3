// Fixed span (Transformer-XL): C_t = {t-L, ..., t-1} (docs/equations.md, "Baselines").
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> fixed_span_options();

}  // namespace lapse
