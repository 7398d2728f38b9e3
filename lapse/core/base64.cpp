#include "lapse/core/base64.h"

#include <algorithm>
#include <cstdint>

#include "lapse/core/error.h"

namespace lapse {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  if (text.size() % 4 != 0) fail("base64: the text is cut off");
  for (size_t at = 0; at < text.size(); at += 4) {
    uint32_t bits = 0;
    size_t padding = 0;
    for (size_t i = 0; i < 4; ++i) {
      const bool pad = text[at + i] == '=' && at + 4 == text.size() && i >= 2;
      const size_t digit = kDigits.find(text[at + i]);
      if ((!pad && digit == kDigits.npos) || (!pad && padding > 0)) fail("base64: a character is none of its digits");
      padding += pad ? 1 : 0;
      bits = bits << 6 | static_cast<uint32_t>(pad ? 0 : digit);
    }
    if ((bits & ((1U << 8 * padding) - 1)) != 0) fail("base64: its last digit stands for more than the bytes hold");
    for (size_t i = 0; i + padding < 3; ++i) bytes += static_cast<char>(bits >> (16 - 8 * i));
  }
  return bytes;
}

}  // namespace lapse
