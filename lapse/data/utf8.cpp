#include "lapse/data/utf8.h"

#include <fmt/format.h>

#include "lapse/core/error.h"

namespace lapse {

bool next_code_point(std::string_view text, size_t& at, char32_t& code) {
  auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) {
    code = lead;
    ++at;
    return true;
  }
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < length) return false;
  char32_t value = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    auto byte = static_cast<unsigned char>(text[at + i]);
    if ((byte & 0xC0) != 0x80) return false;
    value = value << 6 | (byte & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[length] || surrogate || value > 0x10FFFF) return false;
  code = value;
  at += length;
  return true;
}

void fail_utf8(std::string_view text, size_t at, const std::string& origin, const char* advice) {
  fail(fmt::format("{}: not UTF-8 at byte {} (0x{:02X}){}", origin, at, static_cast<unsigned char>(text[at]), advice));
}

void require_utf8(std::string_view text, const std::string& origin, const char* advice) {
  char32_t code;
  for (size_t at = 0; at < text.size();) {
    if (!next_code_point(text, at, code)) fail_utf8(text, at, origin, advice);
  }
}

}  // namespace lapse
