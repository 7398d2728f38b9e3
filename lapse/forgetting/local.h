// Local attention: every layer reads the newest rows only (sliding windows: Beltagy et al. 2020, Longformer;
// "all-local" in Leviathan et al. 2024, A.8).
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> local_options();

}  // namespace lapse
