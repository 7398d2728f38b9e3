#include "lapse/data/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/error.h"

namespace lapse {
namespace {

using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::string to_utf8(char32_t code) {
  auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8, ReadsEveryCodePoint) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text = to_utf8(code) + "x";
    size_t at = 0;
    char32_t read = 0;
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(next_code_point(text, at, read), !surrogate) << static_cast<uint32_t>(code);
    ASSERT_EQ(at, surrogate ? 0 : text.size() - 1);
    ASSERT_TRUE(surrogate || read == code);
  }
}

TEST(Utf8, RefusesMalformedBytesAndNamesTheOffset) {
  const std::string malformed[] = {
      "\x80",  // a continuation without its lead
      "\xC3",
      "\xE2\x82",
      "\xF0\x9F\x98",  // cut off by the end ...
      "\xC3x",
      "\xE2\x82x",
      "\xF0\x9F\x98x",
      "\xC3\xC3\xA9",  // ... or by another character
      "\xC0\x80",
      "\xC1\xBF",
      "\xE0\x9F\xBF",
      "\xF0\x8F\xBF\xBF",  // overlong
      "\xED\xA0\x80",
      "\xED\xBF\xBF",  // surrogates
      "\xF4\x90\x80\x80",
      "\xF5\x80\x80\x80",
      "\xFE",
      "\xFF\xFF\xFF\xFF"  // beyond U+10FFFF
  };
  for (const std::string& bytes : malformed) {
    EXPECT_THAT([&] { require_utf8("a\xC3\xA9" + bytes, "f.txt"); },
                ThrowsMessage<Error>(StartsWith("f.txt: not UTF-8 at byte 3 (0x")))
        << bytes;
  }
}

TEST(Utf8, AcceptsTheEmptyTextAndZeroBytes) {
  EXPECT_NO_THROW(require_utf8("", "f.txt"));
  EXPECT_NO_THROW(require_utf8(std::string(3, '\0'), "f.txt"));
}

}  // namespace
}  // namespace lapse
