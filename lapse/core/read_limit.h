// How much may be read into memory, so that what has no end (a pipe, a gzip bomb) stops with an error.
#pragma once

#include <cstddef>
#include <string>

namespace lapse {

class ReadLimit {
 public:
  /// At first the `part`th part of the memory that this process can still take. `origin` begins the message.
  ReadLimit(std::string origin, int part);

  /// At most so many bytes, if that is less than before; `why` ends the message.
  void lower(size_t most, const std::string& why);

  /// Error if so many bytes are too many.
  void check(size_t bytes) const {
    if (bytes > most_) refuse();
  }

 private:
  [[noreturn]] void refuse() const;

  std::string origin_, why_;
  size_t most_;
};

}  // namespace lapse
