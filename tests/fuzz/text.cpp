// Texts: gzip, UTF-8, and what is cut into tokens. Each input is inflated, as a gzip file or as the data of one, and
// read as a text of some unit.
#include "lapse/data/text.h"
#include "fuzz.h"
#include "lapse/core/base64.h"
#include "lapse/core/gzip.h"
#include "lapse/data/utf8.h"
#include "lapse/data/vocabulary.h"

namespace {

using lapse::refused;
using lapse::require;
using lapse::Vocabulary;

std::string in_utf8(char32_t code) {
  std::string bytes;
  const auto add = [&](char32_t byte) { bytes += static_cast<char>(byte); };
  const auto more = [&](int shift) { add(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return add(code), bytes;
  if (code < 0x800) return add(0xC0 | code >> 6), more(0), bytes;
  if (code < 0x10000) return add(0xE0 | code >> 12), more(6), more(0), bytes;
  return add(0xF0 | code >> 18), more(12), more(6), more(0), bytes;
}

/// What is decoded is the same bytes when it is encoded.
void decode(const std::string& text) {
  std::string back;
  size_t at = 0;
  for (char32_t code; at < text.size() && lapse::next_code_point(text, at, code);) back += in_utf8(code);
  require(text.starts_with(back) && back.size() == at, "other bytes than those that were decoded", text);
  require(refused([&] { lapse::require_utf8(text, "input"); }) == (at < text.size()), "both UTF-8 and not", text);
}

void tokenize(const Vocabulary& vocabulary, const std::string& text) {
  refused([&] {
    std::vector<lapse::TextBytes> bytes;
    int64_t all = 0;
    vocabulary.decode(vocabulary.encode(text, &bytes));
    for (const auto& token : bytes) all += token.all;
    require(all == (bytes.empty() ? 0 : std::ssize(text)), "tokens do not stand for all of the text", text);
  });
}

void tokenize(const std::string& text) {
  static const Vocabulary characters =
      Vocabulary::from_json(R"({"unit": "character", "tokens": ["\uFFFD", "\n", " ", "a", "é", "☃"]})");
  tokenize(characters, text);
  refused([&] { tokenize(Vocabulary::build({.unit = "word", .max_vocabulary = 9}, text), text); });
}

/// In one of the ways; the length says which, so that nothing of the input is spent on the choice.
void cut(const std::string& text) {
  constexpr const char* kHow[] = {"none", "lines", "<doc </doc>"};
  constexpr const char* kUnits[] = {"byte", "character", "word", "subword", "t5"};
  const size_t choice = text.size() % 15;
  refused([&] {
    const lapse::Text found = lapse::find_documents(text, kHow[choice % 3], "input");
    require(lapse::beginning(found, 0.6, lapse::unit_named(kUnits[choice % 5])).size() <= found.bytes.size(),
            "cut behind its end", text);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lapse::as_text(data, size);
  constexpr std::string_view kHead("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  refused([&] { lapse::inflate_gzip(lapse::is_gzip(text) ? text : std::string(kHead) + text, "input"); });
  refused([&] { require(lapse::to_base64(lapse::from_base64(text)) == text, "base64 of two spellings", text); });
  decode(text);
  tokenize(text);
  cut(text);
  return 0;
}
