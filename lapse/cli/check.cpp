#include "lapse/cli/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// "0 ... 100".
template <class T>
std::string bounds(T low, T high) {
  return fmt::format("{} ... {}", low, high);
}

/// For the help: without an upper bound that only keeps numbers from overflowing.
template <class T>
std::string shown_bounds(T low, T high) {
  constexpr T kMany = 1'000'000'000;
  return high < kMany ? bounds(low, high) : fmt::format("at least {}", low);
}

}  // namespace

// CLI11 would read 010 as an octal number: only one spelling of each number is accepted.
Check whole_number(int64_t low, int64_t high) {
  const std::string range = bounds(low, high);
  const auto check = [=](const std::string& text) -> std::string {
    const char* end = text.data() + text.size();
    int64_t value = 0;
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::invalid_argument || stopped != end ||
        (text != fmt::format("{}", value) && error == std::errc()))
      return fmt::format("'{}' is not a whole number; give {}", text, range);
    if (error != std::errc() || value < low || value > high)
      return fmt::format("{} is out of range; give {}", text, range);
    return {};
  };
  return {check, shown_bounds(low, high)};
}

Check number(double low, double high) {
  const std::string range = bounds(low, high);
  const auto check = [=](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || std::isspace(static_cast<unsigned char>(text[0])) || std::isnan(value))
      return fmt::format("'{}' is not a number; give {}", text, range);
    return value >= low && value <= high ? "" : fmt::format("{} is out of range; give {}", text, range);
  };
  return {check, shown_bounds(low, high)};
}

Check one_of(const std::vector<std::string>& names) {
  const auto check = [=](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return {};
    return fmt::format("there is no '{}'{}; give one of {}", text, did_you_mean(text, names), fmt::join(names, ", "));
  };
  return {check, fmt::format("{{{}}}", fmt::join(names, ","))};
}

}  // namespace lapse
