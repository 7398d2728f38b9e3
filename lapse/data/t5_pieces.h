// The pieces of T5's own SentencePiece models, which normalise a text before they cut it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lapse/data/pieces.h"

namespace lapse {

class PieceModel;

/// A SentencePiece model as T5 has it (`spiece.model`): id 0 is padding, 1 the end, and another stands for what no
/// piece has. A text is normalised (NFKC; white space becomes one space) and begins with a space, so tokens do not tell
/// all of its bytes.
class T5Pieces : public Pieces {
 public:
  /// Error if the bytes are no model, or one that does not begin with padding and the end.
  T5Pieces(std::string model, const std::string& origin);
  ~T5Pieces() override;

  int64_t size() const override { return static_cast<int64_t>(decoded_.size()); }
  const std::string& model() const override { return model_; }
  /// Reads UTF-8 line by line. The ids are those of the whole text, because a line end is white space.
  std::vector<int32_t> encode(std::string_view text, std::vector<TextBytes>& text_bytes, bool continues) const override;
  const std::string& decode(int32_t id) const override { return decoded_.at(static_cast<size_t>(id)); }

 private:
  TextBytes bytes_of(int32_t id, std::string_view stretch) const;

  std::string model_, origin_;
  std::unique_ptr<PieceModel> begins_, continues_;  // the latter puts no space before a text
  std::vector<std::string> decoded_;
  int32_t unknown_ = -1;
};

}  // namespace lapse
