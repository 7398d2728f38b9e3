// Adaptive-Span: every head learns how far back it reads (Sukhbaatar et al. 2019; docs/equations.md, "Baselines").
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> adaptive_span_options();

}  // namespace lapse
