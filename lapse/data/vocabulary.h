// Text to token ids and back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lapse/data/config.h"
#include "lapse/data/text_bytes.h"
#include "lapse/data/unit.h"

namespace lapse {

class Pieces;

/// How the token is written that windows begin with, and that no text has.
constexpr std::string_view kBos = "<bos>";

/// A fixed list of tokens. Units:
///   byte       256 ids, id = byte; every text has exactly one encoding and back.
///   character  UTF-8 code points that occur at least min_count times in the training text, by code point; id 0 stands
///              for all others (decoded as U+FFFD).
///   word       separated by ASCII white space; each line end is the word "<eos>" (WikiText's convention). Id 0 is
///              "<unk>", id 1 "<eos>" (those words in the text are these ids too), then by count and by bytes.
///   subword    pieces of a SentencePiece model (data.tokenizer), which the vocabulary holds; every text has an
///              encoding that gives it back, byte by byte.
///   t5         pieces of T5's own SentencePiece model (data.tokenizer), which the vocabulary holds; the text is
///              normalised, and ids 0 and 1 are the model's padding and end.
///   token      what a generated task names (lapse/tasks): words between white space, and no others.
/// Characters and words are cut by min_count and by max_vocabulary, which keeps the most frequent and counts the
/// special ids. Their text must be UTF-8: Error naming the byte offset. With data.windows or data.documents there is
/// one id more, the last, that begins a window and stands for no text: BOS (256 for bytes). Instead,
/// with span corruption (data/spans.h), id 0 is padding, which also begins what is predicted, 1 is EOS, the tokens
/// follow, and then the sentinels. Behind them are ids that no text has, as many as data.padded_vocabulary asks for.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// From the training text. Error if the text is empty, the unit unknown, or no character or word is kept; for
  /// subwords, if data.tokenizer is no SentencePiece model.
  static Vocabulary build(const DataConfig& config, std::string_view text);
  /// A task's own tokens, and perhaps BOS. `outputs`: how many kinds of labels it asks for; 0: its tokens.
  static Vocabulary of_task(std::vector<std::string> tokens, bool has_bos, int64_t outputs = 0);
  /// From what `to_json` gave. Error if it is not of that form; `origin` begins the message.
  static Vocabulary from_json(const std::string& json, const std::string& origin = "vocabulary");
  std::string to_json() const;

  int64_t size() const { return std::max(used(), padded_); }
  int64_t outputs() const { return outputs_ > 0 ? outputs_ : size(); }  ///< kinds of what is predicted
  /// The token that begins a window, or a target; -1: there is none.
  int32_t bos() const { return sentinels_ > 0 ? 0 : has_bos_ ? static_cast<int32_t>(tokens_.size()) : -1; }
  int32_t eos() const { return sentinels_ > 0 ? 1 : -1; }  ///< -1: there is none
  int64_t sentinels() const { return sentinels_; }
  int64_t padded() const { return padded_; }  ///< data.padded_vocabulary
  /// The sentinel of span 0, 1, ...: the last id that is used, the one before it, ...
  int32_t sentinel(int64_t span) const { return static_cast<int32_t>(used() - 1 - span); }
  const Unit& unit() const { return *unit_; }  ///< where it is UTF-8, `encode` refuses other texts

  /// `text_bytes`: gains those of each token, white space before it included; nothing for bytes, which stand for one
  /// each. `continues`: the text goes on where a word may be going on; else it begins one, which makes a difference if
  /// the unit is normalised.
  std::vector<int32_t> encode(std::string_view text, std::vector<TextBytes>* text_bytes = nullptr,
                              bool continues = false) const;
  /// The text of one token as it is written in a stream: for words, the word and a space ("\n" for <eos>).
  std::string decode(int32_t id) const;
  std::string decode(const std::vector<int32_t>& ids) const;

  /// The bytes of the SentencePiece model's file; empty: the unit has none.
  const std::string& pieces_model() const;

  std::string metric_name() const { return std::string(unit_->metric); }
  std::string metric_tag() const { return std::string(unit_->tag); }  ///< for progress lines and TensorBoard
  /// The metric of a mean negative log-likelihood in nats per token.
  double metric(double nats) const;

 private:
  struct Hash {
    using is_transparent = void;  // looks up a std::string_view without a copy
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  Vocabulary(const Unit& unit, std::vector<std::string> tokens, bool has_bos);
  static Vocabulary of_json(const nlohmann::ordered_json& json, const std::string& origin);
  static Vocabulary of_text(const DataConfig& config, std::string_view text);
  int32_t first() const { return sentinels_ > 0 && !unit_->normalised ? 2 : 0; }  // id of the first token
  int64_t used() const {  // ids that texts have, and special ones
    return static_cast<int64_t>(tokens_.size()) + (has_bos_ ? 1 : 0) + first() + sentinels_;
  }
  std::vector<int32_t> encode_tokens(std::string_view text, std::vector<TextBytes>& text_bytes, bool continues) const;
  static Vocabulary of_pieces(const Unit& unit, std::string model, const std::string& origin, bool has_bos);
  std::vector<int32_t> encode_characters(std::string_view text, std::vector<TextBytes>& text_bytes) const;
  std::vector<int32_t> encode_words(std::string_view text, std::vector<TextBytes>& text_bytes) const;

  const Unit* unit_ = &unit_named("byte");
  bool has_bos_ = false;
  int64_t outputs_ = 0, sentinels_ = 0, padded_ = 0;
  std::vector<std::string> tokens_;                                      // id -> bytes
  std::vector<int32_t> by_code_point_;                                   // characters only: code point -> id
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;  // words and tasks' tokens only
  std::shared_ptr<const Pieces> pieces_;                                 // of a SentencePiece model only
};

}  // namespace lapse
