// Tokens of the training, validation and test splits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lapse/data/vocabulary.h"

namespace lapse {

/// A long sequence of token ids kept in 1, 2 or 4 bytes each, as the vocabulary's size needs; where a token is not one
/// byte of text, one byte more says how many it stands for, and another how many of them are unknown, if any are.
class Tokens {
 public:
  Tokens() = default;
  explicit Tokens(int64_t vocabulary_size);
  Tokens(const std::vector<int32_t>& ids, int64_t vocabulary_size);

  /// ids in 0 ... vocabulary_size - 1. `text_bytes`: how many bytes of the text each stands for; empty: one each, for
  /// the whole sequence.
  void append(const std::vector<int32_t>& ids, const std::vector<TextBytes>& text_bytes = {});
  void reserve_bytes(size_t bytes) { bytes_.reserve(bytes); }

  struct Document {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  /// The tokens since the document before are one more. There is one, or else no document at all.
  void end_document();
  /// In the order of the text; none: the text is not made of documents.
  const std::vector<Document>& documents() const { return documents_; }
  /// Leaves out documents of fewer tokens.
  void keep_documents(int64_t least);
  /// Tokens begin ... end - 1, with what they hold of documents.
  Tokens slice(int64_t begin, int64_t end) const;

  int64_t size() const { return static_cast<int64_t>(bytes_.size()) / width_; }
  int32_t operator[](int64_t i) const;
  TextBytes text_bytes(int64_t i) const {  ///< of token i
    if (text_bytes_.empty()) return {1};
    if (text_bytes_[i] == kLong) return long_.at(i);
    return {text_bytes_[i], i < std::ssize(unknown_bytes_) ? unknown_bytes_[i] : 0};
  }
  uint32_t checksum() const;  ///< CRC-32 of the ids and documents: tells one text from another
  /// The same of how many bytes each token has, and how many of them are unknown; 0 where each token is a byte. Unknown
  /// words of two texts have one id.
  uint32_t bytes_checksum() const;

 private:
  int64_t vocabulary_size_ = 0, width_ = 1;
  static constexpr uint8_t kLong = 255;
  std::vector<uint8_t> bytes_, text_bytes_, unknown_bytes_;
  std::map<int64_t, TextBytes> long_;  // of tokens of kLong bytes or more
  std::vector<Document> documents_;
};

struct Corpus {
  Vocabulary vocabulary;
  Tokens train, valid, test;  ///< valid and test may be empty (three-file form without them, or a zero fraction)
};

/// Reads the config's file or files (plain or gzip) and encodes them. With one file, the text is cut by bytes at the
/// split's fractions (characters: moved to the next code point; words: to just after the next white space; subwords:
/// to before it; documents: to after the document); the vocabulary comes from the training part, that of subwords from
/// its file. Errors, one line each: as find_documents;
/// no path; both forms given; a missing or empty file; fractions that are not three non-negative numbers of sum 1
/// (within 1e-6), the first positive; an empty training part; malformed UTF-8 or gzip. With `known`, that vocabulary is
/// used instead: of the run to fine-tune.
Corpus load_corpus(const DataConfig& config, const Vocabulary* known = nullptr);

/// Error if there is no such file: the first error of many a first run, so it says what to do. `named_by`: what else
/// may name a text, after "--data FILE"; `note` ends it.
void require_text(const fs::path& path, const std::string& named_by = "", const std::string& note = "");

/// One more file, or one split of the config's data, under an existing vocabulary: for `lapse eval`.
/// split: "train" | "valid" | "test" cut `path` by config.split as load_corpus does; "all" takes the whole file. The
/// unit is the vocabulary's. A part may be empty.
Tokens load_tokens(const fs::path& path, const std::string& split, const DataConfig& config,
                   const Vocabulary& vocabulary);

}  // namespace lapse
