// Subwords: a SentencePiece model that gives every text back, byte by byte.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lapse/data/pieces.h"

namespace lapse {

class PieceModel;

/// A trained SentencePiece model (unigram or BPE). Its ids are SentencePiece's own: control symbols, 256 bytes
/// ("<0x0A>"), then pieces, in which U+2581 stands for a space.
class Subwords : public Pieces {
 public:
  /// `model`: the bytes of a model file; `origin` begins messages. Error if they are none, or if the model cannot give
  /// every text back: it has no byte fallback, or changes the text before it cuts it.
  Subwords(std::string model, const std::string& origin);
  ~Subwords() override;

  int64_t size() const override { return static_cast<int64_t>(decoded_.size()); }
  const std::string& model() const override { return model_; }

  /// Any bytes. Line ends, U+2581 and what is not UTF-8 become bytes; SentencePiece cuts what is between. Error, with
  /// its reason, where it cannot: of models that nobody trained.
  std::vector<int32_t> encode(std::string_view text) const;
  std::vector<int32_t> encode(std::string_view text, std::vector<TextBytes>& text_bytes, bool continues) const override;
  const std::string& decode(int32_t id) const override { return decoded_.at(static_cast<size_t>(id)); }

 private:
  std::vector<int> encode_plain(std::string_view text) const;

  std::string model_, origin_;
  std::unique_ptr<PieceModel> pieces_;
  std::vector<std::string> decoded_;
  std::vector<int32_t> byte_ids_;
  bool knows_space_;  // else a space is a byte: SentencePiece would write the three of U+2581
};

struct SubwordTraining {
  int64_t size = 8192;           ///< of the vocabulary, with the 256 bytes and 3 control symbols
  std::string kind = "unigram";  ///< or "bpe"
};

/// The bytes of a model trained on the texts; the same for the same texts. Error, with SentencePiece's reason, where
/// the size does not suit them.
std::string train_subwords(const std::vector<std::string>& texts, const SubwordTraining& options);

}  // namespace lapse
