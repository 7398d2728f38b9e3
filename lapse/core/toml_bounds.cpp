#include "lapse/core/toml_bounds.h"

#include <fmt/format.h>

#include <algorithm>

namespace lapse {
namespace {

// A configuration has sections and keys, and lists as values: one dot, one bracket within another.
constexpr size_t kMostBytes = 1'000'000;
constexpr int kMostDots = 16, kMostBrackets = 16;

// Where the string that begins at `at` ends; where it has no end, or a line end that it may not have, there. What is
// between means nothing to us, and the parser stops at the same place.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at).starts_with(three);
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines && text.substr(i).starts_with(three)) {
      while (text.substr(i + 3).starts_with(quote)) ++i;  // up to two quotes may precede the three that end it
      return i + 3;
    } else if (!lines && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    }
  }
  return text.size();
}

}  // namespace

std::optional<TomlFault> toml_fault(std::string_view text) {
  if (text.size() > kMostBytes) return TomlFault{1, fmt::format("more than {} bytes of configuration", kMostBytes)};
  int64_t line = 1;
  int dots = 0, brackets = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const size_t end = end_of_string(text, at);
      for (; at + 1 < end; ++at) line += text[at] == '\n';
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '.') {
      if (++dots > kMostDots) return TomlFault{line, fmt::format("a key of more than {} parts", kMostDots)};
    } else if (c == '[' || c == '{') {
      if (++brackets > kMostBrackets)
        return TomlFault{line, fmt::format("more than {} brackets within one another", kMostBrackets)};
      dots = 0;
    } else if (c == ']' || c == '}') {
      brackets = std::max(0, brackets - 1), dots = 0;
    } else if (c == '=' || c == ',' || c == '\n') {
      line += c == '\n', dots = 0;
    }
  }
  return std::nullopt;
}

}  // namespace lapse
