// Texts that would exhaust the TOML parser, which calls itself for every level, are refused before it reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lapse {

struct TomlFault {
  int64_t line;
  std::string what;
};

/// The first place where the text is too long, its brackets nest too deeply, or a key has too many parts; none if it
/// can be parsed. Says nothing of whether it is TOML.
std::optional<TomlFault> toml_fault(std::string_view text);

}  // namespace lapse
