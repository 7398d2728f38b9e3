// The head of an HTTP request, read strictly: what is unusual is refused, because programs that read it differently can
// be played off against each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "lapse/serve/http.h"

namespace lapse {

struct HttpHead {
  int status = 0;       ///< 0: it can be answered; else refuse it so
  std::string message;  ///< why
  std::string method, target;
  std::map<std::string, std::string> headers;  ///< names in lower case
  size_t length = 0;                           ///< bytes of the body

  std::string header(const std::string& name) const;
};

/// `text`: everything up to and including the empty line.
HttpHead read_head(std::string_view text, const HttpLimits& limits);

/// Who may ask: 0, or the status of the refusal, and why. `port`: the server's own.
struct Refusal {
  int status = 0;
  std::string message;
};
Refusal check_origin(const HttpHead& head, const HttpOptions& options, int64_t port);
Refusal check_token(const HttpHead& head, const HttpOptions& options);

}  // namespace lapse
