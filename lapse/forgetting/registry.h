// The registry of forgetting methods: one line each in registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/forgetting/method.h"

namespace lapse {

struct MethodEntry {
  std::string name;
  std::string help;
  std::unique_ptr<MethodOptions> (*options)();  ///< with every option at its default
};

const std::vector<MethodEntry>& method_table();

/// The method of a configuration that names none.
const MethodEntry& default_method();

/// Error, with the nearest name, if there is no such method.
const MethodEntry& find_method(const std::string& name);
/// Those that need no training: any run can be read with them.
std::vector<const MethodEntry*> untrained_methods();
/// The same as find_method, for reading a run that is trained: the error lists the methods that need no training.
const MethodEntry& find_method_to_read_with(const std::string& name);

}  // namespace lapse
