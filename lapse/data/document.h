// Documents, each in a window of its own: BOS and the document's first tokens, padded on the right.
#pragma once

#include "lapse/data/stream.h"

namespace lapse {

/// Endless blocks of `batch` documents, of each at most `length` tokens. Every pass reads all of them, in an order of
/// its own; a block may hold the end of one pass and the beginning of the next. Blocks are as long as their longest
/// document. The tokens must outlive them.
class TrainingDocuments : public TrainingBlocks {
 public:
  /// The tokens must have documents.
  TrainingDocuments(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length, Random random);

  TokenBlock next() override;
  State state() const override { return {position_, pass_, true, drawn_at_}; }
  void set_state(const State& state) override;

 private:
  void draw_order();

  const Tokens& tokens_;
  int32_t bos_;
  int64_t batch_, length_;
  Random random_;
  std::vector<size_t> order_;  // of this pass
  uint64_t drawn_at_ = 0;      // the random stream's counter before the order was drawn
  int64_t position_ = 0, pass_ = 0;
};

/// The documents once, in the order of the text, `batch` at a time (the last block has fewer), of each at most `length`
/// tokens.
class EvaluationDocuments : public EvaluationBlocks {
 public:
  EvaluationDocuments(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length);

  bool next(TokenBlock& block) override;
  int64_t blocks() const override;

 private:
  const Tokens& tokens_;
  int32_t bos_;
  int64_t batch_, length_, position_ = 0;
};

}  // namespace lapse
