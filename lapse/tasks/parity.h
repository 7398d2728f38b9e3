// Parity* (Selective Attention, A.2): the parity so far, between the bits.
#pragma once

#include <memory>

#include "lapse/tasks/task.h"

namespace lapse {

std::unique_ptr<TaskOptions> parity_options();

}  // namespace lapse
