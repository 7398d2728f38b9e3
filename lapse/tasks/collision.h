// Object Collision (Sukhbaatar et al. 2021, Tables 3, 4 and 7; Figure 7).
#pragma once

#include <memory>

#include "lapse/tasks/task.h"

namespace lapse {

std::unique_ptr<TaskOptions> collision_options();

}  // namespace lapse
