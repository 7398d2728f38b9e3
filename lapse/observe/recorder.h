// What a model remembers of a text, and for how long: seen in its memory tables at every single token.
#pragma once

#include <functional>

#include "lapse/data/source.h"
#include "lapse/observe/memory_record.h"
#include "lapse/observe/observer.h"

namespace lapse {

struct TextRecord : MemoryRecord {
  std::vector<int32_t> tokens;  ///< as read, BOS of each window included
  std::vector<double> nats;     ///< negative log-likelihood of what follows each token; NaN where nothing is scored
  std::vector<int32_t> ends;    ///< of each window or stream, what followed its last token; a task's label, or -1
  Score score;
};

/// Writes down what a model remembers of the tokens that it is given.
class TextRecorder : public Observer {
 public:
  /// The model must outlive the recorder.
  explicit TextRecorder(Transformer& model) : model_(model), rows_(model, record) {}
  TextRecorder(const TextRecorder&) = delete;

  BlockOptions wants() const override { return {.observe = true}; }
  void token(const SeenToken& seen) override;

  /// What follows is read with empty memory. Comes before the first token.
  void restart();
  /// `target`: what follows the token; kUnscored: it is not asked for.
  void read(int64_t token, int64_t target);
  void end_stream();

  TextRecord record;

 private:
  Transformer& model_;
  ModelMemory memory_;
  MemoryRecorder rows_;
  int32_t next_ = -1;
};

struct RecorderOptions {
  int64_t tokens = 0;                               ///< read at most so many; 0: all
  std::function<void(int64_t done)> progress = {};  ///< after each token; may be empty
};

/// Reads blocks of one stream, or of one window after another, token by token with fixed weights. c10::Error if a block
/// has more than one sample; Error if there is nothing to read.
TextRecord record_memory(Transformer& model, EvaluationBlocks& blocks, const RecorderOptions& options = {});

}  // namespace lapse
