// A stream of text, one token at a time. Time and memory per token follow |C_t|, not the number of tokens seen.
#pragma once

#include <string>
#include <vector>

#include "lapse/core/file.h"
#include "lapse/model/transformer.h"
#include "lapse/read/sampler.h"
#include "lapse/read/steps.h"

namespace lapse {

class Vocabulary;

/// What stands between the text of a prompt and of what follows its last token: a space or nothing. Words and tasks'
/// tokens are decoded with the space after them, which a prompt need not end with.
std::string space_after(const std::string& prompt, int32_t last, const Vocabulary& vocabulary);

class Generator {
 public:
  /// The model must outlive the generator.
  Generator(Transformer& model, const SamplingOptions& options, uint64_t seed);

  /// What the model's encoder, which it must have, is to read: with the first tokens that follow.
  void read_source(const std::vector<int32_t>& tokens);
  /// Reads tokens, block by block. At least one is needed before `next`. Error, and nothing is read, for tokens that
  /// are not of the vocabulary, or more than the model's window has room for.
  void feed(const std::vector<int32_t>& tokens);
  /// Draws the next token, and reads it unless the model's window is full: then none can follow, and
  /// another call is an Error.
  int32_t next();

  /// Whether nothing can follow: the model's window is full.
  bool full() const { return seen_ > 0 && !logits_.defined(); }
  /// Forgets all that was read. The random draws go on.
  void reset();

  /// Keeps the stream, and where its random draws are, in a file; and goes on from there in place of what was read
  /// (read/saved_streams.h). With the same seed the text is the same as without a stop.
  void save(const fs::path& file, const std::string& described) const;
  void load(const fs::path& file, const std::string& described);

  /// Tokens read so far.
  int64_t seen() const { return seen_; }
  /// Rows that each layer holds for the next query, which may read its own beside them.
  std::vector<int64_t> memory_sizes() const;
  /// Bytes held by the memory tables.
  int64_t memory_bytes() const { return memory_.bytes(); }
  /// For each token read, in how many layers it is still remembered.
  std::vector<int32_t> remembered() const;

 private:
  Transformer& model_;
  SamplingOptions options_;
  Random random_;
  ModelMemory memory_;
  Steps steps_;
  at::Tensor source_;  // yet to be read; undefined: nothing
  at::Tensor logits_;  // of the token after the last one read; [V]
  int64_t seen_ = 0;
};

}  // namespace lapse
