// H2O, the heavy-hitter oracle: keeps the newest rows and those that have received most attention so far (Zhang et al.
// 2023). Causal: scores come from past queries only. Rows are shared by the heads, whose scores are summed.
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> h2o_options();

}  // namespace lapse
