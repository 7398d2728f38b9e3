// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <string>
#include <string_view>

namespace lapse {

/// Whether the byte is of a character that began before it.
inline bool continues_character(char byte) { return (byte & 0xC0) == 0x80; }
inline bool begins_within_character(std::string_view text) { return !text.empty() && continues_character(text[0]); }

/// Reads the code point at text[at] and moves `at` past it; false, and `at` unmoved, where the bytes are malformed.
bool next_code_point(std::string_view text, size_t& at, char32_t& code);

constexpr const char* kOtherUnits = "; only runs of bytes and of subwords read other text (data.unit)";

/// Error for the malformed bytes at text[at]; `origin` (a path, say) begins the message, and `advice` ends it.
[[noreturn]] void fail_utf8(std::string_view text, size_t at, const std::string& origin, const char* advice = "");

/// Error at the first malformed bytes, if any.
void require_utf8(std::string_view text, const std::string& origin, const char* advice = "");

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";      ///< what separates words
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  ///< some editors put it before a file's first line

}  // namespace lapse
