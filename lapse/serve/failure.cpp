#include "lapse/serve/failure.h"

#include <c10/util/Exception.h>

namespace lapse {

std::string message_of(const std::exception& error) {
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error)) return of_torch->what_without_backtrace();
  return error.what();
}

}  // namespace lapse
