// How much may be read into memory, so that what has no end (a pipe, a gzip bomb) stops with an error.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <utility>

namespace lapse {

class ReadLimit {
 public:
  /// At first the `part`th part of the memory that this process can still take, or kLittle if that is more. `origin`
  /// begins the message.
  ReadLimit(std::string origin, int part) : origin_(std::move(origin)), part_(part) {}

  /// At most so many bytes, if that is less than before; `why` ends the message.
  void lower(size_t most, const std::string& why);

  /// Error if so many bytes are too many.
  void check(size_t bytes) {
    if (bytes > kLittle) ask_for_memory();
    if (bytes > most_) refuse();
  }

 private:
  static constexpr size_t kLittle = 16'000'000;  // bytes; to ask how much is free costs more than to read a line

  void ask_for_memory();
  [[noreturn]] void refuse() const;

  std::string origin_, why_;
  int part_;
  bool asked_ = false;
  size_t most_ = std::numeric_limits<size_t>::max();
};

}  // namespace lapse
