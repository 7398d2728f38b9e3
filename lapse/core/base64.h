// Bytes as text: base64 (RFC 4648), for binary data within JSON.
#pragma once

#include <string>
#include <string_view>

namespace lapse {

std::string to_base64(std::string_view bytes);

/// Error if the text is not base64 with its padding.
std::string from_base64(std::string_view text);

}  // namespace lapse
