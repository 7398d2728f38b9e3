// What a run reads: a text, or the sequences of a generated task. The trainer and the command use only this interface.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lapse/data/stream.h"
#include "lapse/data/vocabulary.h"

namespace lapse {

/// How a model did on some blocks.
struct Score {
  double nats = 0;     ///< negative log-likelihood, summed over scored positions
  int64_t scored = 0;  ///< positions with something to predict
  TextBytes bytes;     ///< of text that was predicted
  /// Counted of blocks with TokenBlock::answers. An answer is a run of scored positions, or of TokenBlock::asked; it is
  /// right if all of them are.
  int64_t right = 0, answers = 0, right_answers = 0;
  std::map<std::string, double> more;  ///< sums of other kinds, by name

  Score& operator+=(const Score& other);
};

/// One number to report.
struct Figure {
  std::string name;  ///< "bits per byte"
  std::string tag;   ///< "bpb": for progress lines, JSON and TensorBoard
  double value = 0;
};

class Source {
 public:
  virtual ~Source() = default;

  virtual const Vocabulary& vocabulary() const = 0;
  virtual std::string describe() const = 0;             ///< one line for the user
  virtual bool has(const std::string& part) const = 0;  ///< "train", "valid", "test"
  /// Of the text that a part is, or is made from: another text has another. 0 if there is none.
  virtual uint32_t checksum(const std::string& part) const = 0;
  /// Of what its tokens stand for where their ids do not say it (Tokens::bytes_checksum). 0 if they do.
  virtual uint32_t bytes_checksum(const std::string&) const { return 0; }

  /// Endless. All randomness comes from `random`.
  virtual std::unique_ptr<TrainingBlocks> training(int64_t batch, int64_t block, Random random) = 0;
  /// A part, once, in `batch` streams or at most `batch` windows at a time. `drop_partial`: without what fills no
  /// block.
  virtual std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t block,
                                                       bool drop_partial) = 0;
  /// How many streams, at most `most`, suit a part.
  virtual int64_t streams(const std::string& part, int64_t block, int64_t most) const = 0;

  /// The main figure first. What the score does not tell is left out.
  virtual std::vector<Figure> figures(const Score& score) const = 0;
};

/// A text.
class TextSource : public Source {
 public:
  /// All parts of the configuration's text. Errors as load_corpus.
  TextSource(const DataConfig& config, const Vocabulary* known);
  /// One part alone.
  TextSource(const DataConfig& config, Vocabulary vocabulary, const std::string& part, Tokens tokens);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string describe() const override;
  bool has(const std::string& part) const override { return tokens(part).size() > 0; }
  uint32_t checksum(const std::string& part) const override { return has(part) ? tokens(part).checksum() : 0; }
  uint32_t bytes_checksum(const std::string& part) const override { return tokens(part).bytes_checksum(); }
  std::unique_ptr<TrainingBlocks> training(int64_t batch, int64_t block, Random random) override;
  std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t block,
                                               bool drop_partial) override;
  int64_t streams(const std::string& part, int64_t block, int64_t most) const override;
  std::vector<Figure> figures(const Score& score) const override;

  const Tokens& tokens(const std::string& part) const;  ///< none if there is no such part

 private:
  DataConfig config_;
  Vocabulary vocabulary_;
  std::vector<std::pair<std::string, Tokens>> parts_;
};

}  // namespace lapse
