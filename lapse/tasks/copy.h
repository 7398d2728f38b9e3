// Copy (Selective Attention, A.2): repeat a string.
#pragma once

#include <memory>

#include "lapse/tasks/task.h"

namespace lapse {

std::unique_ptr<TaskOptions> copy_options();

}  // namespace lapse
