// An error with the status that HTTP gives it.
#pragma once

#include <exception>
#include <string>

#include "lapse/core/error.h"

namespace lapse {

class Failure : public Error {
 public:
  Failure(int status, const std::string& message) : Error(message), status(status) {}
  const int status;
};

/// In one line, without what libtorch says of its own stack.
std::string message_of(const std::exception& error);

}  // namespace lapse
