// The registry of generated tasks: one line each in registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/tasks/task.h"

namespace lapse {

struct TaskEntry {
  std::string name;
  std::string help;
  std::unique_ptr<TaskOptions> (*options)();  ///< with every option at its default
};

const std::vector<TaskEntry>& task_table();

}  // namespace lapse
