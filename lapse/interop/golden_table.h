// How golden files of each forgetting method name its options and parameters: one entry each in golden_table.cpp.
#pragma once

#include <map>
#include <string>

#include "lapse/interop/golden_value.h"
#include "lapse/memory/table.h"

namespace lapse {

struct GoldenEntry {
  std::string method;
  /// The method's options -> where the metadata has their values.
  std::map<std::string, std::string> options = {};
  /// The method's options -> their values in all such files.
  std::map<std::string, std::string> constants = {};
  /// The method's parameters -> their names in the file, after "layers.N.".
  std::map<std::string, std::string> parameters = {};
  /// Of a file of the method's operator: all that follows from its inputs ("q", "k", "v", ...), by the file's names.
  /// Null if there are no such files.
  Columns (*outputs)(const Columns& inputs, const GoldenMetadata& metadata) = nullptr;
};

/// Error if there is no such method, or there are no golden files of it.
const GoldenEntry& golden_entry(const std::string& method);

}  // namespace lapse
