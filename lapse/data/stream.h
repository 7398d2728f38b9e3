// Blocks of text, and B parallel streams of blocks of K (docs/equations.md, "Training").
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "lapse/core/random.h"
#include "lapse/data/corpus.h"

namespace lapse {

/// A target that is not scored: no loss looks at it (PyTorch's ignore_index).
constexpr int64_t kUnscored = -100;

/// One block: row-major [batch][length]; target[i] is the token after input[i], or the label that a task asks for
/// there.
struct TokenBlock {
  int64_t batch = 0, length = 0;
  std::vector<int64_t> input, target;
  bool restart = false;          ///< memory must be emptied before this block: a new pass begins here
  std::vector<int64_t> lengths;  ///< of each sample, tokens before the padding on its right; empty: no padding
  TextBytes bytes;               ///< of the targets
  bool answers = false;          ///< targets are answers: it is counted which of them are right
  /// Of `answers`, [batch][length]: which targets are parts of answers, each run of them one answer; empty: all that
  /// are scored.
  std::vector<bool> asked;
  std::vector<int64_t>
      source;  ///< [batch][source.size() / batch]: what an encoder reads of each sample; empty: nothing
  std::vector<int64_t> starts;  ///< of a text: where in it each sample's first target stands; else empty

  /// Without padding.
  int64_t tokens() const {
    return lengths.empty() ? batch * length : std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  }
  /// Samples first ... first + count - 1. The bytes are not divided: those of the first sample's part are all, others'
  /// 0.
  TokenBlock part(int64_t first, int64_t count) const;
  int64_t scored() const { return std::ssize(target) - std::count(target.begin(), target.end(), kUnscored); }
};

/// What to predict at every `period`-th token of a stream, where that is not the next token.
struct Labels {
  Tokens values;  ///< [floor(tokens / period)]; 0: not scored
  int64_t period = 1;

  int64_t at(int64_t i) const {
    const int32_t value = (i + 1) % period == 0 ? values[i / period] : 0;
    return value == 0 ? kUnscored : value;
  }
};

/// Where training takes its blocks from, without end.
class TrainingBlocks {
 public:
  virtual ~TrainingBlocks() = default;
  virtual TokenBlock next() = 0;

  /// The whole state: resuming from it repeats the following blocks exactly.
  struct State {
    int64_t position = 0;  ///< of the next block, relative to each stream's start
    int64_t pass = 0;      ///< passes begun before this one
    bool restart = true;   ///< the next block starts from empty memory
    uint64_t random_counter = 0;
  };
  virtual State state() const = 0;
  virtual void set_state(const State& state) = 0;  ///< Error if it is of another text or shape
};

/// A text, once. A block that restarts may be of another batch size than the one before.
class EvaluationBlocks {
 public:
  virtual ~EvaluationBlocks() = default;
  virtual bool next(TokenBlock& block) = 0;  ///< false at the end
  virtual int64_t blocks() const = 0;        ///< how many blocks there are in all
};

/// Endless training blocks. The text is cut into `batch` contiguous streams of floor(size / batch) tokens. The first
/// pass starts at a random offset, the same in every stream; when fewer than block + 1 tokens are left in the streams,
/// memory restarts and the next pass starts at a random offset in [0, block). All randomness comes from `random`. The
/// tokens must outlive the streams, and so must the labels, where there are any.
class TrainingStreams : public TrainingBlocks {
 public:
  /// Error if the text is shorter than batch * (2 * block + 1) tokens; says how to mend (smaller batch or block).
  TrainingStreams(const Tokens& tokens, int64_t batch, int64_t block, Random random, const Labels* labels = nullptr);

  TokenBlock next() override;
  State state() const override;
  void set_state(const State& state) override;

 private:
  const Tokens& tokens_;
  const Labels* labels_;
  int64_t batch_, block_, stream_length_;
  Random random_;
  int64_t position_ = 0, pass_ = 0;
  bool restart_ = true;
};

/// Reads a text once from its start in `batch` contiguous streams of floor(size / batch) tokens. Every token but the
/// first of each stream is predicted once (with labels: they are asked for at every token); the last block may be
/// shorter, or is left out with `drop_partial`.
class EvaluationStreams : public EvaluationBlocks {
 public:
  /// Error if a stream would have fewer than 2 tokens, or with `drop_partial` no whole block (block + 1 tokens): there
  /// is always a block to average over.
  EvaluationStreams(const Tokens& tokens, int64_t batch, int64_t block, bool drop_partial,
                    const Labels* labels = nullptr);

  bool next(TokenBlock& block) override;
  int64_t blocks() const override;

 private:
  const Tokens& tokens_;
  const Labels* labels_;
  int64_t batch_, block_, stream_length_, predictions_, position_ = 0;
  bool drop_partial_;
};

}  // namespace lapse
