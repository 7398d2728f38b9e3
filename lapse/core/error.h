// Errors that a user can mend.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

namespace lapse {

/// One line that says what is wrong, where, and how to mend it. `main` prints it and exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// As messages are printed: one harmless line of bearable length, whatever the message quotes.
std::string one_line(const std::string& message);

/// Throws Error, with one line. Use as fail(fmt::format("{}: ...", path)).
[[noreturn]] void fail(const std::string& message);

/// " (did you mean 'x'?)" for a candidate that contains `name` or is short for it, as bf16 for bfloat16, or the nearest
/// in edit distance; "" where none is near.
template <class Names>
std::string did_you_mean(const std::string& name, const Names& candidates);

/// Levenshtein distance of two names; a swap of neighbours counts as one edit.
size_t edit_distance(const std::string& a, const std::string& b);

/// Whether `brief` is some characters of `name` in their order, the first and the last among them.
bool is_short_for(const std::string& brief, const std::string& name);

// ---------------------------------------------------------------------------------------------------------------------

template <class Names>
std::string did_you_mean(const std::string& name, const Names& candidates) {
  std::string nearest;
  size_t best = (name.size() + 1) / 3 + 1;  // as far away as this is another word, not a slip
  constexpr size_t kLeast = 4;              // letters; a shorter name is found in many others
  for (const std::string& candidate : candidates)
    if ((name.size() >= kLeast && candidate.find(name) != std::string::npos) ||
        (candidate.size() >= kLeast && is_short_for(candidate, name)))
      return " (did you mean '" + candidate + "'?)";
  for (const std::string& candidate : candidates) {
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    if (longer - shorter >= best) continue;  // each character more is an edit
    const size_t d = edit_distance(name, candidate);
    if (d < best) best = d, nearest = candidate;
  }
  return nearest.empty() ? "" : " (did you mean '" + nearest + "'?)";
}

}  // namespace lapse
