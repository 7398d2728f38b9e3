#include "lapse/data/corpus.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/data/text.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr std::array<const char*, 3> kParts = {"train", "valid", "test"};

void require_trained_text(const fs::path& path) {
  require_text(path, " or data.path",
               ". A configuration's relative path is looked for beside it, then in the working directory");
}

void check_split(const std::vector<double>& split) {
  double sum = 0;
  for (double fraction : split) sum += fraction;
  bool right = split.size() == 3 && split[0] > 0 && split[1] >= 0 && split[2] >= 0 && std::abs(sum - 1) <= 1e-6;
  if (right) return;
  fail(fmt::format(
      "data.split = [{}]: give three fractions of sum 1 for training, validation and test, the first above 0",
      fmt::join(split, ", ")));
}

/// From one byte of a text to before another.
struct Range {
  size_t begin = 0, end = 0;

  std::string_view of(const Text& text) const { return std::string_view(text.bytes).substr(begin, end - begin); }
};

/// The training, validation and test parts.
std::array<Range, 3> cut_text(const Text& text, const std::vector<double>& split, const Unit& unit) {
  const size_t size = text.bytes.size();
  const auto cut = [&](double fraction) { return beginning(text, fraction, unit).size(); };
  // A part of fraction 0 stays empty, however the sum of the others is rounded.
  const size_t valid_end = split[2] > 0 ? cut(split[0] + split[1]) : size;
  const size_t train_end = split[1] > 0 ? cut(split[0]) : valid_end;
  return {Range{0, train_end}, {train_end, valid_end}, {valid_end, size}};
}

Text read_corpus_file(const fs::path& path, const DataConfig& config, const Unit& unit, bool all_markers = true) {
  std::string text = read_text_file(path);
  if (text.empty()) fail(fmt::format("{}: the file is empty", path.string()));
  if (unit.utf8) require_utf8(text, path.string(), kOtherUnits);
  return find_documents(std::move(text), config.documents, path.string(), all_markers);
}

/// Where a piece of words may end, from `at` on: behind a word, since white space is of the word after it, if one
/// comes.
size_t end_of_words(std::string_view text, size_t at, size_t end) {
  if (at >= end) return end;
  if (kWhiteSpace.find(text[at - 1]) != kWhiteSpace.npos) at = text.find_first_not_of(kWhiteSpace, at);
  at = text.find_first_of(kWhiteSpace, at);
  return text.find_first_not_of(kWhiteSpace, at) < end ? at : end;
}

/// Document by document, else piece by piece: the ids of a whole text would take four times its size.
Tokens encode_text(const Vocabulary& vocabulary, const Text& text, const Range& range) {
  constexpr size_t kPiece = 1 << 20;
  // Spans are cut out of stretches across documents, between which only a line end stays.
  const bool documents = !text.ends.empty() && vocabulary.sentinels() == 0;
  Tokens tokens(vocabulary.size());
  tokens.reserve_bytes(range.end - range.begin);
  for (size_t begin = range.begin; begin < range.end;) {
    size_t next = begin + (documents ? 1 : kPiece);
    if (!documents && vocabulary.unit().words)
      next = end_of_words(text.bytes, next, range.end);
    else
      next = std::min(text.cut(next, vocabulary.unit()), range.end);
    std::vector<TextBytes> text_bytes;
    const auto ids = vocabulary.encode(Range{begin, documents ? next - 1 : next}.of(text), &text_bytes);
    tokens.append(ids, text_bytes);
    if (documents) tokens.end_document();
    begin = next;
  }
  return tokens;
}

Tokens encode_text(const Vocabulary& vocabulary, const Text& text) {
  return encode_text(vocabulary, text, {0, text.bytes.size()});
}

Tokens encode_file(const Vocabulary& vocabulary, const DataConfig& config, const std::string& path) {
  if (path.empty()) return Tokens(vocabulary.size());
  return encode_text(vocabulary, read_corpus_file(path, config, vocabulary.unit()));
}

Corpus load_one_file(const DataConfig& config, const Vocabulary* known) {
  require_trained_text(config.path);
  const Text text = read_corpus_file(config.path, config, unit_named(config.unit));
  const auto [train, valid, test] = cut_text(text, config.split, unit_named(config.unit));
  if (train.end == 0) {
    fail(fmt::format("{}: the training part is empty (fraction {} of {} bytes)", config.path, config.split[0],
                     text.bytes.size()));
  }
  Corpus corpus;
  corpus.vocabulary = known ? *known : Vocabulary::build(config, train.of(text));
  corpus.train = encode_text(corpus.vocabulary, text, train);
  corpus.valid = encode_text(corpus.vocabulary, text, valid);
  corpus.test = encode_text(corpus.vocabulary, text, test);
  return corpus;
}

Corpus load_three_files(const DataConfig& config, const Vocabulary* known) {
  for (const auto& path : {config.train_path, config.valid_path, config.test_path})
    if (!path.empty()) require_trained_text(path);
  Corpus corpus;
  {
    const Text text = read_corpus_file(config.train_path, config, unit_named(config.unit));
    corpus.vocabulary = known ? *known : Vocabulary::build(config, text.bytes);
    corpus.train = encode_text(corpus.vocabulary, text);
  }
  corpus.valid = encode_file(corpus.vocabulary, config, config.valid_path);
  corpus.test = encode_file(corpus.vocabulary, config, config.test_path);
  return corpus;
}

}  // namespace

void require_text(const fs::path& path, const std::string& named_by, const std::string& note) {
  std::error_code error;
  if (fs::exists(path, error) || error) return;  // reading tells what else is wrong
  fail(fmt::format("cannot read '{}': No such file; name a text with --data FILE{}, or get one with scripts/data.sh{}",
                   fs::absolute(path).string(), named_by, note));
}

Tokens::Tokens(int64_t vocabulary_size)
    : vocabulary_size_(vocabulary_size),
      width_(vocabulary_size <= 1 << 8    ? 1
             : vocabulary_size <= 1 << 16 ? 2
                                          : 4) {}

Tokens::Tokens(const std::vector<int32_t>& ids, int64_t vocabulary_size) : Tokens(vocabulary_size) { append(ids); }

void Tokens::append(const std::vector<int32_t>& ids, const std::vector<TextBytes>& text_bytes) {
  for (const TextBytes& bytes : text_bytes) {
    if (bytes.all >= kLong) {
      long_.emplace(std::ssize(text_bytes_), bytes);
    } else if (bytes.unknown > 0) {
      unknown_bytes_.resize(text_bytes_.size());
      unknown_bytes_.push_back(static_cast<uint8_t>(bytes.unknown));
    }
    text_bytes_.push_back(static_cast<uint8_t>(std::min<int64_t>(bytes.all, kLong)));
  }
  size_t end = bytes_.size();
  bytes_.resize(end + ids.size() * width_);
  for (int32_t id : ids) {
    for (int64_t i = 0; i < width_; ++i) bytes_[end++] = static_cast<uint8_t>(id >> 8 * i);
  }
}

void Tokens::end_document() {
  const int64_t begin = documents_.empty() ? 0 : documents_.back().end;
  if (size() > begin) documents_.push_back({begin, size()});
}

void Tokens::keep_documents(int64_t least) {
  std::erase_if(documents_, [&](const Document& document) { return document.size() < least; });
}

Tokens Tokens::slice(int64_t begin, int64_t end) const {
  Tokens part(vocabulary_size_);
  std::vector<int32_t> ids;
  std::vector<TextBytes> bytes;
  for (int64_t i = begin; i < end; ++i) ids.push_back((*this)[i]), bytes.push_back(text_bytes(i));
  part.append(ids, bytes);
  for (const auto& document : documents_)
    if (const Document cut{std::max(document.begin, begin) - begin, std::min(document.end, end) - begin};
        cut.size() > 0)
      part.documents_.push_back(cut);
  return part;
}

uint32_t Tokens::checksum() const {
  auto sum = crc32_z(0, bytes_.data(), bytes_.size());
  if (!documents_.empty())
    sum = crc32_z(sum, reinterpret_cast<const uint8_t*>(documents_.data()), documents_.size() * sizeof(Document));
  return static_cast<uint32_t>(sum);
}

uint32_t Tokens::bytes_checksum() const {
  uLong sum = 0;
  const auto add = [&](const void* data, size_t size) {
    if (size > 0) sum = crc32_z(sum, static_cast<const uint8_t*>(data), size);
  };
  add(text_bytes_.data(), text_bytes_.size());
  add(unknown_bytes_.data(), unknown_bytes_.size());
  for (const auto& [at, bytes] : long_) {
    const std::array<int64_t, 3> all = {at, bytes.all, bytes.unknown};
    add(all.data(), sizeof all);
  }
  return static_cast<uint32_t>(sum);
}

int32_t Tokens::operator[](int64_t i) const {
  int32_t id = 0;
  for (int64_t k = 0; k < width_; ++k) id |= static_cast<int32_t>(bytes_[i * width_ + k]) << 8 * k;
  return id;
}

Corpus load_corpus(const DataConfig& config, const Vocabulary* known) {
  if (known && known->unit().name != config.unit)
    fail(fmt::format("data.unit is \"{}\", but the run to go on from has \"{}\"", config.unit, known->unit().name));
  if (known && config.in_windows() && known->bos() < 0)
    fail(fmt::format("data.{0} asks for windows, but the run to go on from has no token that begins one; leave it out",
                     config.windows ? "windows" : "documents"));
  if (known && config.corrupts_spans()) {
    if (known->sentinels() != config.sentinels)
      fail(fmt::format("data.sentinels is {}, but the run to go on from has {}", config.sentinels, known->sentinels()));
    if (known->padded() != config.padded_vocabulary)
      fail(fmt::format("data.padded_vocabulary is {}, but the run to go on from has {}", config.padded_vocabulary,
                       known->padded()));
  }
  bool three_files = !config.train_path.empty() || !config.valid_path.empty() || !config.test_path.empty();
  if (!config.path.empty() && three_files) fail("data: give either `path` or `train`, `valid`, `test`, not both");
  check_split(config.split);  // of three files too: a later text, of `lapse eval --data`, is divided by it
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
  const Text text = read_corpus_file(path, config, vocabulary.unit(), /*all_markers=*/false);
  if (part == kParts.end()) return encode_text(vocabulary, text);
  return encode_text(vocabulary, text, cut_text(text, config.split, vocabulary.unit())[part - kParts.begin()]);
}

}  // namespace lapse
