// What the tests of the tasks share.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "lapse/tasks/registry.h"

namespace lapse {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// A task with these options; the options of reading too.
inline std::unique_ptr<TaskOptions> make_task(const std::string& name, const Settings& settings) {
  for (const auto& entry : task_table()) {
    if (entry.name != name) continue;
    auto task = entry.options();
    Fields fields = task->fields();
    for (Field& field : task->reading_fields()) fields.push_back(std::move(field));
    for (const auto& [key, value] : settings) {
      const auto field = std::ranges::find(fields, key, &Field::name);
      if (field == fields.end()) throw std::logic_error(name + " has no option " + key);
      set_field(*field, value, key);
    }
    return task;
  }
  return nullptr;
}

/// Every task, small.
inline Settings small(const std::string& task) {
  if (task == "variable_assignment") return {{"repetitions", "6"}, {"values", "20"}};
  if (task == "copy") return {{"longest", "9"}};
  if (task == "parity") return {{"bits", "7"}};
  if (task == "long_copy") return {{"gap", "23"}, {"valid_sequences", "40"}, {"test_sequences", "50"}};
  if (task == "instruction") return {{"rounds", "20"}, {"valid_words", "300"}, {"test_words", "300"}};
  if (task == "collision") return {{"train_steps", "500"}, {"valid_steps", "300"}, {"test_steps", "300"}};
  throw std::logic_error("give the task " + task + " small options here");
}

inline std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& entry : task_table()) names.push_back(entry.name);
  return names;
}

}  // namespace lapse
