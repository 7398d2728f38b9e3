// Attention sinks and a window: the first few rows of a stream and the newest ones (Xiao et al. 2023, StreamingLLM).
// The paper gives rows their positions within the cache; here they keep their age, as in training: sinks older than the
// model's L are read without a position.
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> sink_window_options();

}  // namespace lapse
