#include "lapse/core/first_difference.h"

#include <sstream>

namespace lapse {

std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  for (;;) {
    std::string of_a, of_b;
    const bool more_a = static_cast<bool>(std::getline(left, of_a)),
               more_b = static_cast<bool>(std::getline(right, of_b));
    if (!more_a && !more_b) return {};
    if (more_a != more_b || of_a != of_b) return {more_a ? of_a : "nothing", more_b ? of_b : "nothing"};
  }
}

}  // namespace lapse
