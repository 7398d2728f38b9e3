#include "lapse/data/t5_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "lapse/core/error.h"
#include "lapse/data/replacement_table.h"
#include "lapse/data/sentencepiece.h"
#include "lapse/data/sentencepiece_model.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr std::string_view kUnknown = "<unk>";
// normalizer_spec {add_dummy_prefix: false}: of two such settings in a message the last counts.
constexpr std::string_view kNoPrefix("\x1A\x02\x18\x00", 4);

std::unique_ptr<PieceModel> load(const std::string& model, const std::string& origin) {
  const auto tables = replacement_tables(model);
  if (tables && !std::ranges::all_of(*tables, is_sound_table))
    fail(origin + ": this SentencePiece model is damaged: its table of characters to replace leads out of itself");
  auto pieces = tables && !model.empty() ? sentencepiece_plugin().load(model) : nullptr;
  if (!pieces) fail(origin + ": not a SentencePiece model");
  return pieces;
}

/// Without the white space that it begins with.
std::string_view word_of(std::string_view stretch) {
  stretch.remove_prefix(std::min(stretch.find_first_not_of(kWhiteSpace), stretch.size()));
  return stretch;
}

}  // namespace

T5Pieces::T5Pieces(std::string model, const std::string& origin)
    : model_(std::move(model)),
      origin_(origin),
      begins_(load(model_, origin)),
      continues_(load(model_ + std::string(kNoPrefix), origin)) {
  for (int32_t id = 0; id < begins_->size(); ++id) {
    const PieceKind kind = begins_->kind(id);
    if (kind == PieceKind::kUnknown) unknown_ = id;
    const bool is_text = kind == PieceKind::kText || kind == PieceKind::kByte;
    decoded_.push_back(is_text                       ? text_of_piece(begins_->piece(id), kind)
                       : kind == PieceKind::kUnknown ? std::string(kUnknown)
                                                     : "");
  }
  const auto is_control = [&](int32_t id) { return size() > id && begins_->kind(id) == PieceKind::kControl; };
  if (!is_control(0) || !is_control(1))
    fail(origin +
         ": the first two pieces of this SentencePiece model are not padding and the end, as in T5's; "
         "data.unit = \"subword\" reads those of `lapse tokenizer train`");
}

T5Pieces::~T5Pieces() = default;

/// Of the stretch of a text that a piece stands for: where normalising changed its word, the piece tells nothing of it.
TextBytes T5Pieces::bytes_of(int32_t id, std::string_view stretch) const {
  const auto all = std::ssize(stretch);
  const std::string_view word = word_of(stretch);
  const bool told = id != unknown_ && word == word_of(decoded_[id]);
  return {all, told ? untold(all - std::ssize(word)) : all};
}

std::vector<int32_t> T5Pieces::encode(std::string_view text, std::vector<TextBytes>& text_bytes, bool continues) const {
  std::vector<int32_t> ids;
  size_t told = 0;  // where ends what the ids stand for
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    try {
      auto pieces = begins_->locate(line);
      // What SentencePiece takes for white space at the line's beginning is in no piece; a word begins behind it.
      const bool begins = pieces.empty() || pieces.front().begin > 0;
      if (continues && begin == 0 && !begins) pieces = continues_->locate(line);
      for (const auto& piece : pieces) {
        ids.push_back(piece.id);
        text_bytes.push_back(bytes_of(piece.id, text.substr(told, begin + piece.end - told)));
        told = begin + piece.end;
      }
    } catch (const std::runtime_error& error) {
      fail(fmt::format("{}: this SentencePiece model cannot cut the text: {}", origin_, reason_of(error.what())));
    }
  }
  const auto rest = std::ssize(text.substr(told));
  if (!ids.empty()) text_bytes.back() += {rest, untold(rest)};
  return ids;
}

}  // namespace lapse
