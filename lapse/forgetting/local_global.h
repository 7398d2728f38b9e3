// Local and global layers in turns: three layers of local attention, then one that reads everything (Leviathan et al.
// 2024, A.8).
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> local_global_options();

}  // namespace lapse
