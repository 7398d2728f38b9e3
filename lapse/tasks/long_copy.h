// Extremely long copy (Sukhbaatar et al. 2021, Table 1): how many A's were there, up to 128 k tokens ago?
#pragma once

#include <memory>

#include "lapse/tasks/task.h"

namespace lapse {

std::unique_ptr<TaskOptions> long_copy_options();

}  // namespace lapse
