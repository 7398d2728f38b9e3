// The instruction task in LIGHT (Sukhbaatar et al. 2021, 5.2: Figure 4 right, Table 5).
#pragma once

#include <memory>

#include "lapse/tasks/task.h"

namespace lapse {

std::unique_ptr<TaskOptions> instruction_options();

}  // namespace lapse
