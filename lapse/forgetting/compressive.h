// Compressive Transformer, mean pooling: the newest L timesteps as they are, older ones pooled (Rae et al. 2020;
// docs/equations.md, "Baselines").
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> compressive_options();

}  // namespace lapse
