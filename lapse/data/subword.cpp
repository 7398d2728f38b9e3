#include "lapse/data/subword.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, SentencePiece's own sign for a space
constexpr size_t kLongestSentence = 4000;            // bytes; the trainer leaves longer ones out

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

std::string with_spaces(std::string piece) {
  for (size_t at = 0; (at = piece.find(kSpace, at)) != piece.npos; ++at) piece.replace(at, kSpace.size(), " ");
  return piece;
}

/// Stretches of text, one after the other, none longer than the trainer reads.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      for_each_stretch(
          text, true, [&](std::string_view stretch) { add(stretch); }, [](uint8_t) {});
  }
  bool empty() const { return sentences_.empty(); }
  bool done() const override { return at_ == sentences_.size(); }
  void Next() override { current_ = ++at_ < sentences_.size() ? std::string(sentences_[at_]) : ""; }
  const std::string& value() const override { return current_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void add(std::string_view stretch) {
    while (!stretch.empty()) {
      size_t length = stretch.size();
      if (length > kLongestSentence) {
        length = stretch.rfind(' ', kLongestSentence);
        if (length == stretch.npos || length == 0)
          for (length = kLongestSentence; (stretch[length] & 0xC0) == 0x80;) --length;
      }
      sentences_.push_back(stretch.substr(0, length));
      stretch.remove_prefix(length);
    }
    if (at_ == 0) current_ = std::string(sentences_[0]);
  }

  std::vector<std::string_view> sentences_;
  size_t at_ = 0;
  std::string current_;
};

}  // namespace

Subwords::Subwords(std::string model, const std::string& origin)
    : model_(std::move(model)), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  if (model_.empty() || !processor_->LoadFromSerializedProto(model_).ok())
    fail(origin + ": not a SentencePiece model; `lapse tokenizer train` makes one");
  byte_ids_.assign(256, -1);
  for (int id = 0; id < processor_->GetPieceSize(); ++id) {
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsByte(id)) {
      const auto byte = static_cast<uint8_t>(std::stoi(piece.substr(3, 2), nullptr, 16));  // "<0x0A>"
      byte_ids_[byte] = id;
      decoded_.emplace_back(1, static_cast<char>(byte));
    } else {
      const bool is_control = processor_->IsControl(id) || processor_->IsUnknown(id) || processor_->IsUnused(id);
      decoded_.push_back(is_control ? "" : with_spaces(piece));
    }
  }
  if (std::ranges::count(byte_ids_, -1) > 0)
    fail(origin + ": this SentencePiece model has no byte fallback, so it cannot give every text back");
  knows_space_ = !processor_->IsUnknown(processor_->PieceToId({kSpace.data(), kSpace.size()}));
  // What each setting that changes the text would change.
  constexpr std::string_view probe = " A  \xC2\xAA \xEF\xBC\xA1 ";
  std::string back;
  for (const int32_t id : encode(probe)) back += decode(id);
  if (back != probe)
    fail(origin + ": this SentencePiece model changes texts (it normalises them); make one by `lapse tokenizer train`");
}

Subwords::~Subwords() = default;

std::vector<int32_t> Subwords::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  for_each_stretch(
      text, knows_space_,
      [&](std::string_view stretch) {
        std::vector<int> pieces;
        if (const auto status = processor_->Encode({stretch.data(), stretch.size()}, &pieces); !status.ok())
          fail("SentencePiece: " + status.ToString());
        ids.insert(ids.end(), pieces.begin(), pieces.end());
      },
      [&](uint8_t byte) { ids.push_back(byte_ids_[byte]); });
  return ids;
}

std::shared_ptr<const Subwords> read_subwords(const fs::path& path) {
  return std::make_shared<Subwords>(read_file(path), path.string());
}

std::string train_subwords(const std::vector<std::string>& texts, const SubwordTraining& options) {
  sentencepiece::SetRandomGeneratorSeed(1);
  Sentences sentences(texts);
  if (sentences.empty()) fail("there is no text to train a tokenizer on");
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"model_type", options.kind},
                                                  {"vocab_size", std::to_string(options.size)},
                                                  {"byte_fallback", "true"},
                                                  {"normalization_rule_name", "identity"},
                                                  {"add_dummy_prefix", "false"},
                                                  {"remove_extra_whitespaces", "false"},
                                                  {"max_sentence_length", std::to_string(2 * kLongestSentence)},
                                                  {"num_threads", "4"},  // sums depend on it: the same on every machine
                                                  {"minloglevel", "3"}},
                                                 &sentences, &model);
  if (status.ok()) return model;
  std::string reason = status.ToString();  // "INTERNAL: file.cc(12) [condition] what is wrong"
  if (const size_t at = reason.find("] "); at != reason.npos) reason.erase(0, at + 2);
  reason = reason.substr(0, reason.find(" or decrease character_coverage"));  // a setting that we do not offer
  while (!reason.empty() && (reason.back() == '\n' || reason.back() == ' ')) reason.pop_back();
  fail(fmt::format("SentencePiece cannot make {} pieces of this text: {}", options.size,
                   reason.empty() ? "no reason given" : reason));
}

}  // namespace lapse
