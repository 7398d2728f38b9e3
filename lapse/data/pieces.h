// A text as the pieces of a SentencePiece model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lapse/data/text_bytes.h"
#include "lapse/data/unit.h"

namespace lapse {

/// A trained SentencePiece model. Its ids are SentencePiece's own, and U+2581 in its pieces stands for a space.
class Pieces {
 public:
  virtual ~Pieces() = default;

  virtual int64_t size() const = 0;
  virtual const std::string& model() const = 0;  ///< the bytes of its file
  /// `text_bytes` gains those of each id. `continues`: the text goes on where a word may be going on; else it begins
  /// one. Error, with SentencePiece's reason, where it cannot cut the text: of models that nobody trained.
  virtual std::vector<int32_t> encode(std::string_view text, std::vector<TextBytes>& text_bytes,
                                      bool continues) const = 0;
  /// The bytes that one id stands for; none for a control symbol.
  virtual const std::string& decode(int32_t id) const = 0;
};

/// Of a unit that has pieces, from the bytes of a model file; `origin` begins messages. Error if the unit cannot be
/// made of them.
std::shared_ptr<const Pieces> make_pieces(const Unit& unit, std::string model, const std::string& origin);

}  // namespace lapse
