// SentencePiece, apart from the rest of the process. Debian's library defines symbols that libtorch defines too
// (`FLAGS_minloglevel`): linked into one program, its constructor writes over libc10's variables. So only the plugin
// liblapse_sentencepiece.so is linked with it, which is loaded on first use and shares its symbols with nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lapse {

enum class PieceKind { kText, kByte, kUnknown, kControl };

/// A piece, and where in the text begins and ends what it stands for.
struct PieceAt {
  int32_t id;
  size_t begin, end;
};

/// A loaded SentencePiece model.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual int32_t size() const = 0;
  virtual std::string piece(int32_t id) const = 0;
  virtual PieceKind kind(int32_t id) const = 0;
  virtual bool knows(const std::string& piece) const = 0;
  /// The pieces of UTF-8 text. Throws std::runtime_error with SentencePiece's reason.
  virtual std::vector<int> encode(std::string_view text) const = 0;
  /// The same, with their places.
  virtual std::vector<PieceAt> locate(std::string_view text) const = 0;
};

/// What the plugin offers.
class SentencePiece {
 public:
  virtual ~SentencePiece() = default;
  /// Null if `bytes` are no model.
  virtual std::unique_ptr<PieceModel> load(const std::string& bytes) const = 0;

  struct Training {
    std::string kind;  ///< "unigram" or "bpe"
    int64_t size;      ///< pieces
    int64_t longest;   ///< bytes of a sentence
  };
  /// The bytes of a model that is trained on the sentences, the same for the same sentences. Throws std::runtime_error
  /// with SentencePiece's reason.
  virtual std::string train(const std::vector<std::string_view>& sentences, const Training& options) const = 0;
};

/// Loads the plugin on first use. Error if it is missing.
const SentencePiece& sentencepiece_plugin();

/// U+2581, SentencePiece's own sign for a space.
constexpr std::string_view kSpaceSign = "\xE2\x96\x81";
/// The bytes of a piece of text or of a byte ("<0x0A>").
std::string text_of_piece(std::string piece, PieceKind kind);
/// What is wrong, of SentencePiece's "INTERNAL: file.cc(12) [condition] what is wrong".
std::string reason_of(std::string status);

}  // namespace lapse
