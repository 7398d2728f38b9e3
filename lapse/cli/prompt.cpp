#include "lapse/cli/prompt.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

// Bytes of standard input, and of a line there: it may never end.
constexpr size_t kLongest = size_t{1} << 28, kLongestLine = size_t{1} << 20;

std::string standard_input() {
  std::string text(1 << 16, '\0');
  size_t size = 0;
  while (std::cin.read(text.data() + size, static_cast<std::streamsize>(text.size() - size)) || std::cin.gcount() > 0) {
    size += static_cast<size_t>(std::cin.gcount());
    if (size > kLongest) fail(fmt::format("--prompt -: standard input has more than {} bytes; give less", kLongest));
    if (size == text.size()) text.resize(2 * size);
  }
  text.resize(size);
  return text;
}

std::string without_last_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

std::string read_prompt(const std::string& prompt, const std::string& file) {
  if (!file.empty()) return without_last_line_end(read_text_file(file));
  return prompt == "-" ? without_last_line_end(standard_input()) : prompt;
}

bool read_line(std::string& line) {
  line.clear();
  for (int letter; (letter = std::cin.get()) != EOF && letter != '\n';) {
    if (line.size() == kLongestLine) fail(fmt::format("standard input has a line of more than {} bytes", kLongestLine));
    line += static_cast<char>(letter);
  }
  if (line.empty() && !std::cin) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

std::vector<int32_t> encode_prompt(const Vocabulary& vocabulary, const std::string& prompt, const std::string& origin) {
  char32_t code = 0;
  for (size_t at = 0; at < prompt.size() && vocabulary.unit().utf8;)
    if (!next_code_point(prompt, at, code))
      fail(fmt::format("{}: not UTF-8 at byte {} (0x{:02X}), which a model of unit \"{}\" needs", origin, at,
                       static_cast<unsigned char>(prompt[at]), vocabulary.unit().name));
  return vocabulary.encode(prompt);
}

}  // namespace lapse
