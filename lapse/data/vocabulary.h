// Text to token ids and back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lapse/data/config.h"

namespace lapse {

/// A fixed list of tokens. Units:
///   byte       256 ids, id = byte; every text has exactly one encoding and back.
///   character  UTF-8 code points that occur at least min_count times in the training text, by code point; id 0 stands
///              for all others (decoded as U+FFFD). Text that is not UTF-8 is an Error naming the byte offset.
///   word       separated by white space; each line end is the word "<eos>" (WikiText's convention); id 0 is "<unk>"
///              (an "<unk>" in the text is that id too). By count, then by bytes; cut by min_count and max_vocabulary.
class Vocabulary {
 public:
  /// From the training text. Error if the text is empty or the unit unknown.
  static Vocabulary build(const DataConfig& config, std::string_view text);
  /// From what `to_json` gave; Error if it is not of that form.
  static Vocabulary from_json(const std::string& json);
  std::string to_json() const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& unit() const { return unit_; }

  std::vector<int32_t> encode(std::string_view text) const;
  /// The text of one token as it is written in a stream: for words, the word and a space ("\n" for <eos>).
  std::string decode(int32_t id) const;
  std::string decode(const std::vector<int32_t>& ids) const;

  /// "bits per byte" for bytes, "bits per character", "perplexity" for words.
  std::string metric_name() const;
  /// Short form for progress lines and TensorBoard tags: "bpb", "bpc", "ppl".
  std::string metric_tag() const;
  /// The metric of a mean negative log-likelihood in nats per token.
  double metric(double nats) const;

 private:
  std::string unit_;
  std::vector<std::string> tokens_;                  // id -> bytes
  std::unordered_map<std::string, int32_t> ids_;     // empty for bytes
};

}  // namespace lapse
