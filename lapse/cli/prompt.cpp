#include "lapse/cli/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr size_t kLongest = size_t{1} << 28;  // bytes of standard input: it may never end

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

std::vector<int32_t> encode_prompt(const Vocabulary& vocabulary, const std::string& prompt, const std::string& origin) {
  char32_t code = 0;
  for (size_t at = 0; at < prompt.size() && vocabulary.unit().utf8;)
    if (!next_code_point(prompt, at, code))
      fail(fmt::format("{}: not UTF-8 at byte {} (0x{:02X}), which a model of unit \"{}\" needs", origin, at,
                       static_cast<unsigned char>(prompt[at]), vocabulary.unit().name));
  return vocabulary.encode(prompt);
}

int64_t read_tokens(Generator& generator, const Transformer& model, const std::vector<int32_t>& tokens) {
  constexpr int64_t kLeast = 64, kLong = 100'000;
  const int64_t block = std::max<int64_t>(model.shape().block, 1), total = std::ssize(tokens);
  const int64_t piece = (kLeast + block - 1) / block * block;  // whole blocks, as if all were read at once
  Progress progress("prompt", "tokens", total, /*done=*/0, /*quiet=*/total < kLong);
  int64_t read = 0;
  while (read < total && !interrupted()) {
    // A token alone would be read in another way, and to other bits.
    const int64_t count = total - read <= piece + 1 ? total - read : piece;
    generator.feed({tokens.begin() + read, tokens.begin() + read + count});
    progress.update(read += count);
  }
  return read;
}

}  // namespace lapse
