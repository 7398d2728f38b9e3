// How many bytes of a text its tokens stand for.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lapse {

/// How many bytes of a text tokens stand for; `unknown`: those that tokens do not tell, which are characters and words
/// that the vocabulary lacks, with the white space before them, and of other white space between words all but one
/// byte.
struct TextBytes {
  int64_t all = 0, unknown = 0;

  TextBytes& operator+=(const TextBytes& other) {
    all += other.all, unknown += other.unknown;
    return *this;
  }
  bool operator==(const TextBytes&) const = default;
};

/// Of so many bytes of white space: words are joined by one, and no token tells of more.
inline int64_t untold(int64_t space) { return std::max<int64_t>(space - 1, 0); }

}  // namespace lapse
