#include "lapse/data/corpus.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr std::array<const char*, 3> kParts = {"train", "valid", "test"};
constexpr char kWhereLooked[] =
    ". A configuration's relative path is looked for beside it, then in the working directory";

/// The first place at or after `at` where a text of this unit can be cut without breaking a token.
size_t cut_point(std::string_view text, size_t at, const std::string& unit) {
  if (at == 0 || at >= text.size() || unit == "byte") return std::min(at, text.size());
  if (unit == "character") {
    while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
    return at;
  }
  if (unit == "subword") return std::min(text.find_first_of(" \n", at), text.size());  // no piece reaches across
  size_t space = text.find_first_of(" \t\n\v\f\r", at - 1);
  return space == std::string_view::npos ? text.size() : space + 1;
}

void check_split(const std::vector<double>& split) {
  double sum = 0;
  for (double fraction : split) sum += fraction;
  bool right = split.size() == 3 && split[0] > 0 && split[1] >= 0 && split[2] >= 0 && std::abs(sum - 1) <= 1e-6;
  if (right) return;
  fail(fmt::format("split = [{}]: give three fractions of sum 1 for training, validation and test, the first above 0",
                   fmt::join(split, ", ")));
}

/// The training, validation and test parts.
std::array<std::string_view, 3> cut_text(std::string_view text, const std::vector<double>& split,
                                         const std::string& unit) {
  auto cut = [&](double fraction) { return beginning(text, fraction, unit).size(); };
  // A part of fraction 0 stays empty, however the sum of the others is rounded.
  size_t valid_end = split[2] > 0 ? cut(split[0] + split[1]) : text.size();
  size_t train_end = split[1] > 0 ? cut(split[0]) : valid_end;
  return {text.substr(0, train_end), text.substr(train_end, valid_end - train_end), text.substr(valid_end)};
}

std::string read_corpus_file(const fs::path& path, const std::string& unit) {
  std::string text = read_text_file(path);
  if (text.empty()) fail(fmt::format("{}: the file is empty", path.string()));
  if (unit == "character" || unit == "word") require_utf8(text, path.string());
  return text;
}

/// Piece by piece: the ids of a whole text would take four times its size.
Tokens encode_text(const Vocabulary& vocabulary, std::string_view text) {
  constexpr size_t kPiece = 1 << 20;
  Tokens tokens(vocabulary.size());
  tokens.reserve_bytes(text.size());
  for (size_t begin = 0; begin < text.size();) {
    size_t end = cut_point(text, begin + kPiece, vocabulary.unit());
    std::vector<TextBytes> text_bytes;
    const auto ids = vocabulary.encode(text.substr(begin, end - begin), &text_bytes);
    tokens.append(ids, text_bytes);
    begin = end;
  }
  return tokens;
}

Tokens encode_file(const Vocabulary& vocabulary, const std::string& path) {
  if (path.empty()) return Tokens(vocabulary.size());
  return encode_text(vocabulary, read_corpus_file(path, vocabulary.unit()));
}

Corpus load_one_file(const DataConfig& config, const Vocabulary* known) {
  check_split(config.split);
  require_text(config.path, kWhereLooked);
  std::string text = read_corpus_file(config.path, config.unit);
  auto [train, valid, test] = cut_text(text, config.split, config.unit);
  if (train.empty()) {
    fail(fmt::format("{}: the training part is empty (fraction {} of {} bytes)", config.path, config.split[0],
                     text.size()));
  }
  Corpus corpus;
  corpus.vocabulary = known ? *known : Vocabulary::build(config, train);
  corpus.train = encode_text(corpus.vocabulary, train);
  corpus.valid = encode_text(corpus.vocabulary, valid);
  corpus.test = encode_text(corpus.vocabulary, test);
  return corpus;
}

Corpus load_three_files(const DataConfig& config, const Vocabulary* known) {
  for (const auto& path : {config.train_path, config.valid_path, config.test_path})
    if (!path.empty()) require_text(path, kWhereLooked);
  Corpus corpus;
  {
    std::string text = read_corpus_file(config.train_path, config.unit);
    corpus.vocabulary = known ? *known : Vocabulary::build(config, text);
    corpus.train = encode_text(corpus.vocabulary, text);
  }
  corpus.valid = encode_file(corpus.vocabulary, config.valid_path);
  corpus.test = encode_file(corpus.vocabulary, config.test_path);
  return corpus;
}

}  // namespace

std::string_view beginning(std::string_view text, double fraction, const std::string& unit) {
  const auto size = static_cast<size_t>(std::llround(static_cast<double>(text.size()) * fraction));
  return text.substr(0, cut_point(text, size, unit));
}

void require_text(const fs::path& path, const std::string& note) {
  std::error_code error;
  if (fs::exists(path, error) || error) return;  // reading tells what else is wrong
  fail(fmt::format("cannot read '{}': No such file; name a text with --data FILE, or get one with scripts/data.sh{}",
                   fs::absolute(path).string(), note));
}

Tokens::Tokens(int64_t vocabulary_size) : width_(vocabulary_size <= 1 << 8 ? 1 : vocabulary_size <= 1 << 16 ? 2 : 4) {}

Tokens::Tokens(const std::vector<int32_t>& ids, int64_t vocabulary_size) : Tokens(vocabulary_size) { append(ids); }

void Tokens::append(const std::vector<int32_t>& ids, const std::vector<TextBytes>& text_bytes) {
  for (const TextBytes& bytes : text_bytes) {
    carried_ += bytes;
    const TextBytes now{std::min<int64_t>(carried_.all, 255), std::min<int64_t>(carried_.unknown, 255)};
    if (now.unknown > 0) {
      unknown_bytes_.resize(text_bytes_.size());
      unknown_bytes_.push_back(static_cast<uint8_t>(now.unknown));
    }
    text_bytes_.push_back(static_cast<uint8_t>(now.all));
    carried_.all -= now.all, carried_.unknown -= now.unknown;
  }
  size_t end = bytes_.size();
  bytes_.resize(end + ids.size() * width_);
  for (int32_t id : ids) {
    for (int64_t i = 0; i < width_; ++i) bytes_[end++] = static_cast<uint8_t>(id >> 8 * i);
  }
}

uint32_t Tokens::checksum() const { return static_cast<uint32_t>(crc32_z(0, bytes_.data(), bytes_.size())); }

int32_t Tokens::operator[](int64_t i) const {
  int32_t id = 0;
  for (int64_t k = 0; k < width_; ++k) id |= static_cast<int32_t>(bytes_[i * width_ + k]) << 8 * k;
  return id;
}

Corpus load_corpus(const DataConfig& config, const Vocabulary* known) {
  if (known && known->unit() != config.unit)
    fail(fmt::format("data.unit is \"{}\", but the run to go on from has \"{}\"", config.unit, known->unit()));
  if (known && config.windows && known->bos() < 0)
    fail("data.windows is true, but the run to go on from has no token that begins a window; leave out data.windows");
  bool three_files = !config.train_path.empty() || !config.valid_path.empty() || !config.test_path.empty();
  if (!config.path.empty() && three_files) fail("data: give either `path` or `train`, `valid`, `test`, not both");
  if (!config.path.empty()) return load_one_file(config, known);
  if (config.train_path.empty())
    fail(
        "data: no training text; name one with --data FILE, or set data.path, or data.train and perhaps data.valid and "
        "data.test");
  return load_three_files(config, known);
}

Tokens load_tokens(const fs::path& path, const std::string& split, const DataConfig& config,
                   const Vocabulary& vocabulary) {
  auto part = std::find(kParts.begin(), kParts.end(), split);
  if (part == kParts.end() && split != "all") {
    fail(fmt::format("unknown split \"{}\"; use one of: {}, all", split, fmt::join(kParts, ", ")));
  }
  if (part != kParts.end()) check_split(config.split);
  require_text(path);
  std::string text = read_corpus_file(path, vocabulary.unit());
  if (part == kParts.end()) return encode_text(vocabulary, text);
  return encode_text(vocabulary, cut_text(text, config.split, vocabulary.unit())[part - kParts.begin()]);
}

}  // namespace lapse
