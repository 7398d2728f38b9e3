// Variable Assignment (Selective Attention, A.1): which value did the variable get last?
#pragma once

#include <memory>

#include "lapse/tasks/task.h"

namespace lapse {

std::unique_ptr<TaskOptions> variable_assignment_options();

}  // namespace lapse
