// What the fuzz targets share. A target reads its input as the product would; the only way in which that may fail is an
// Error of one line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lapse/core/error.h"

namespace lapse {

/// Ends the program, which libFuzzer reports as a crash.
inline void require(bool condition, const char* what, std::string_view shown = "") {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s: %.*s\n", what, static_cast<int>(shown.size()), shown.data());
  std::abort();
}

/// Whether `action` throws an Error. Other exceptions pass, and end the program.
template <class Action>
bool refused(const Action& action) {
  try {
    action();
    return false;
  } catch (const Error& error) {
    const std::string_view line = error.what();
    const bool plain = std::ranges::none_of(line, [](unsigned char c) { return c < ' ' || c == 0x7f; });
    require(!line.empty() && plain, "a message is not one line", line);
    return true;
  }
}

inline std::string as_text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace lapse
