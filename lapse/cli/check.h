// What the value of an argument must be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lapse {

struct Check {
  std::function<std::string(const std::string&)> wrong;  ///< why a text is no such value; "": it is one
  std::string shown;                                     ///< in the help, and to the shells' completion
};

/// A whole number or a number within bounds (inclusive), or one of these names. They tell what is no number from what
/// is out of range, and suggest the nearest name.
Check whole_number(int64_t low, int64_t high);
Check number(double low, double high);
Check one_of(const std::vector<std::string>& names);

}  // namespace lapse
