// Independent windows of a text: each starts from empty memory, with the token BOS.
#pragma once

#include "lapse/data/stream.h"

namespace lapse {

/// Endless blocks of `batch` windows of `length` inputs: BOS and length - 1 tokens, from places drawn uniformly. Every
/// token of the text that a window covers is predicted, BOS never. The tokens must outlive the windows.
class TrainingWindows : public TrainingBlocks {
 public:
  /// Error if the text is shorter than a window.
  TrainingWindows(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length, Random random);

  TokenBlock next() override;
  State state() const override;
  void set_state(const State& state) override;

 private:
  const Tokens& tokens_;
  int32_t bos_;
  int64_t batch_, length_;
  Random random_;
};

/// The text once from its start, in windows that follow each other, `batch` at a time (the last block has fewer). The
/// text's end, where it fills no window, is a block of its own, or is left out with `drop_partial`.
class EvaluationWindows : public EvaluationBlocks {
 public:
  /// Error if the text is empty, or with `drop_partial` shorter than a window.
  EvaluationWindows(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length, bool drop_partial);

  bool next(TokenBlock& block) override;
  int64_t blocks() const override;

 private:
  const Tokens& tokens_;
  int32_t bos_;
  int64_t batch_, length_, position_ = 0;
  bool drop_partial_;
};

}  // namespace lapse
