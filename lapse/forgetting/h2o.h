// H2O, the heavy-hitter oracle: keeps the newest rows and those that have received most attention so far (Zhang et al.
// 2023). Causal: scores come from past queries only. Each head has scores and a budget of its own; a row goes once no
// head holds it.
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> h2o_options();

}  // namespace lapse
