#include "lapse/data/subword.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "lapse/core/child.h"
#include "lapse/core/error.h"
#include "lapse/data/sentencepiece.h"
#include "lapse/data/sentencepiece_model.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr size_t kLongestSentence = 4000;  // bytes; the trainer leaves longer ones out

/// Cuts a text into what SentencePiece reads as it stands and single bytes that it would change.
template <class Plain, class Byte>
void for_each_stretch(std::string_view text, bool knows_space, Plain plain, Byte byte) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    char32_t code = 0;
    const bool valid = next_code_point(text, at, code);
    if (!valid) ++at;
    const bool changed = code == '\n' || code == 0 || code == 0x2581 || (code == ' ' && !knows_space);
    if (valid && !changed) continue;
    if (start > begin) plain(text.substr(begin, start - begin));
    for (size_t i = start; i < at; ++i) byte(static_cast<uint8_t>(text[i]));
    begin = at;
  }
  if (begin < text.size()) plain(text.substr(begin));
}

/// Stretches of text, one after the other, none longer than the trainer reads.
std::vector<std::string_view> sentences_of(const std::vector<std::string>& texts) {
  std::vector<std::string_view> sentences;
  const auto add = [&](std::string_view stretch) {
    while (!stretch.empty()) {
      size_t length = stretch.size();
      if (length > kLongestSentence) {
        length = stretch.rfind(' ', kLongestSentence);
        if (length == stretch.npos || length == 0)
          for (length = kLongestSentence; continues_character(stretch[length]);) --length;
      }
      sentences.push_back(stretch.substr(0, length));
      stretch.remove_prefix(length);
    }
  };
  for (const std::string& text : texts) for_each_stretch(text, true, add, [](uint8_t) {});
  return sentences;
}

[[noreturn]] void fail_changes(const std::string& origin) {
  fail(origin +
       ": this SentencePiece model changes texts (it normalises them); make one by `lapse tokenizer train`. "
       "data.unit = \"t5\" reads that of a T5");
}

std::unique_ptr<PieceModel> load(const std::string& model, const std::string& origin) {
  const auto tables = replacement_tables(model);
  if (tables && !tables->empty()) fail_changes(origin);
  auto pieces = tables && !model.empty() ? sentencepiece_plugin().load(model) : nullptr;
  if (!pieces) fail(origin + ": not a SentencePiece model; `lapse tokenizer train` makes one");
  return pieces;
}

}  // namespace

Subwords::Subwords(std::string model, const std::string& origin)
    : model_(std::move(model)), origin_(origin), pieces_(load(model_, origin)) {
  byte_ids_.assign(256, -1);
  for (int32_t id = 0; id < pieces_->size(); ++id) {
    const std::string piece = pieces_->piece(id);
    const PieceKind kind = pieces_->kind(id);
    if (piece.find('\0') != piece.npos)  // where SentencePiece takes it to end
      fail(fmt::format("{}: piece {} of this SentencePiece model has a zero byte; make one by `lapse tokenizer train`",
                       origin, id));
    const bool is_text = kind == PieceKind::kText || kind == PieceKind::kByte;
    decoded_.push_back(is_text ? text_of_piece(piece, kind) : "");
    if (kind == PieceKind::kByte) byte_ids_[static_cast<uint8_t>(decoded_.back()[0])] = id;
  }
  if (std::ranges::count(byte_ids_, -1) > 0)
    fail(origin + ": this SentencePiece model has no byte fallback, so it cannot give every text back");
  knows_space_ = pieces_->knows(std::string(kSpaceSign));
  // What each setting that changes the text would change.
  constexpr std::string_view probe = " A  \xC2\xAA \xEF\xBC\xA1 ";
  std::string back;
  for (const int32_t id : encode(probe)) back += decode(id);
  if (back != probe) fail_changes(origin);
}

Subwords::~Subwords() = default;

std::vector<int> Subwords::encode_plain(std::string_view text) const {
  try {
    return pieces_->encode(text);
  } catch (const std::runtime_error& error) {
    fail(fmt::format("{}: this SentencePiece model cannot cut the text: {}; make one by `lapse tokenizer train`",
                     origin_, reason_of(error.what())));
  }
}

std::vector<int32_t> Subwords::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  for_each_stretch(
      text, knows_space_,
      [&](std::string_view stretch) {
        const std::vector<int> pieces = encode_plain(stretch);
        ids.insert(ids.end(), pieces.begin(), pieces.end());
      },
      [&](uint8_t byte) { ids.push_back(byte_ids_[byte]); });
  return ids;
}

std::vector<int32_t> Subwords::encode(std::string_view text, std::vector<TextBytes>& text_bytes, bool) const {
  std::vector<int32_t> ids = encode(text);
  for (const int32_t id : ids) text_bytes.push_back({std::ssize(decode(id))});
  return ids;
}

std::string train_subwords(const std::vector<std::string>& texts, const SubwordTraining& options) {
  const auto sentences = sentences_of(texts);
  if (sentences.empty()) fail("there is no text to train a tokenizer on");
  const SentencePiece& plugin = sentencepiece_plugin();
  try {
    return in_child([&] { return plugin.train(sentences, {options.kind, options.size, 2 * kLongestSentence}); });
  } catch (const std::runtime_error& error) {
    std::cmatch least;
    if (std::regex_search(error.what(), least, std::regex("smaller than required_chars. \\d+ vs (\\d+)")))
      fail(fmt::format("a vocabulary of {} pieces is too small for the characters of this text; give at least {}",
                       options.size, least.str(1)));
    fail(fmt::format("SentencePiece cannot make {} pieces of this text: {}", options.size, reason_of(error.what())));
  }
}

}  // namespace lapse
