// The plugin liblapse_sentencepiece.so: all that is linked with SentencePiece (sentencepiece.h says why).
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <stdexcept>

#include "lapse/data/sentencepiece.h"

namespace lapse {
namespace {

class Model : public PieceModel {
 public:
  bool load(const std::string& bytes) { return processor_.LoadFromSerializedProto(bytes).ok(); }

  int32_t size() const override { return processor_.GetPieceSize(); }
  std::string piece(int32_t id) const override { return processor_.IdToPiece(id); }
  PieceKind kind(int32_t id) const override {
    if (processor_.IsByte(id)) return PieceKind::kByte;
    // An unused piece is text too: BPE gives the id of one that is a single character.
    if (processor_.IsUnknown(id)) return PieceKind::kUnknown;
    return processor_.IsControl(id) ? PieceKind::kControl : PieceKind::kText;
  }
  bool knows(const std::string& piece) const override { return !processor_.IsUnknown(processor_.PieceToId(piece)); }
  std::vector<int> encode(std::string_view text) const override {
    std::vector<int> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    return pieces;
  }
  std::vector<PieceAt> locate(std::string_view text) const override {
    sentencepiece::ImmutableSentencePieceText found;
    const auto status = processor_.Encode({text.data(), text.size()}, found.mutable_proto());
    if (!status.ok()) throw std::runtime_error(status.ToString());
    std::vector<PieceAt> pieces;
    for (size_t i = 0; i < found.pieces_size(); ++i)
      pieces.push_back({static_cast<int32_t>(found.pieces(i).id()), found.pieces(i).begin(), found.pieces(i).end()});
    return pieces;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string_view>& sentences) : sentences_(sentences) { copy(); }
  bool done() const override { return at_ == sentences_.size(); }
  void Next() override { ++at_, copy(); }
  const std::string& value() const override { return current_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void copy() { current_ = at_ < sentences_.size() ? std::string(sentences_[at_]) : ""; }

  const std::vector<std::string_view>& sentences_;
  size_t at_ = 0;
  std::string current_;
};

class Plugin : public SentencePiece {
 public:
  std::unique_ptr<PieceModel> load(const std::string& bytes) const override {
    auto model = std::make_unique<Model>();
    try {
      return model->load(bytes) ? std::move(model) : nullptr;
    } catch (const std::exception&) {  // its search tree throws, of pieces that begin with a zero byte
      return nullptr;
    }
  }

  std::string train(const std::vector<std::string_view>& sentences, const Training& options) const override {
    sentencepiece::SetRandomGeneratorSeed(1);
    Sentences iterator(sentences);
    std::string model;
    const auto status =
        sentencepiece::SentencePieceTrainer::Train({{"model_type", options.kind},
                                                    {"vocab_size", std::to_string(options.size)},
                                                    {"byte_fallback", "true"},
                                                    {"normalization_rule_name", "identity"},
                                                    {"add_dummy_prefix", "false"},
                                                    {"remove_extra_whitespaces", "false"},
                                                    {"max_sentence_length", std::to_string(options.longest)},
                                                    {"num_threads", "4"},  // sums depend on it: the same everywhere
                                                    {"minloglevel", "3"}},
                                                   &iterator, &model);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    return model;
  }
};

}  // namespace
}  // namespace lapse

extern "C" const lapse::SentencePiece* lapse_sentencepiece() {
  static const lapse::Plugin plugin;
  return &plugin;
}
