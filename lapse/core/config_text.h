// How configuration values and their limits are written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lapse/core/config.h"

namespace lapse {

/// A value as TOML that reads back as the same value of the same type.
std::string to_toml(int64_t value);
std::string to_toml(bool value);
std::string to_toml(double value);
std::string to_toml(const std::string& value);
std::string to_toml(const std::vector<double>& values);
std::string to_toml(const std::vector<int64_t>& values);

/// The text in lines of at most `width` columns, broken between words.
std::vector<std::string> wrapped(std::string_view text, size_t width);

/// "0 ... 10", "at least 1"; "" where the type is the only limit.
std::string range_text(const Field& field);

}  // namespace lapse
