// TOVA: drops the row that the newest query attends least, the heads averaged (Oren et al. 2024).
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> tova_options();

}  // namespace lapse
