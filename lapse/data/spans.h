// Span corruption (Raffel et al., 2020): spans of a text are cut out, and predicted from what is left of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lapse/data/stream.h"

namespace lapse {

/// How many of so many tokens are noise, and in how many spans.
struct SpanCounts {
  int64_t tokens, noise, spans;

  int64_t input() const { return tokens - noise + spans + 1; }  ///< with a sentinel for each span, and EOS
  int64_t target() const { return noise + spans + 1; }          ///< each span after its sentinel, and EOS
};
SpanCounts count_spans(int64_t tokens, const DataConfig& config);
/// Of the most tokens whose input has at most `input`. Error if that is too few, or the vocabulary has fewer sentinels
/// than there are spans.
SpanCounts count_spans_of_input(int64_t input, const DataConfig& config);

/// What is left of tokens, and what was cut out of them.
struct Corrupted {
  std::vector<int64_t> input, target;
  TextBytes bytes;  ///< of the text that was cut out
};
/// Of tokens first ... first + counts.tokens - 1. Lengths of the spans and of what is between them are uniform among
/// those that are at least 1; a span ends the text.
Corrupted corrupt(const Tokens& tokens, int64_t first, const SpanCounts& counts, const Vocabulary& vocabulary,
                  Random& random);

/// Endless blocks of `batch` stretches of text from places drawn uniformly, each with a source of at most `input`
/// tokens. Tokens and vocabulary must outlive them.
class TrainingSpans : public TrainingBlocks {
 public:
  /// Error if the text is shorter than a stretch.
  TrainingSpans(const Tokens& tokens, const Vocabulary& vocabulary, const DataConfig& config, int64_t batch,
                int64_t input, Random random);

  TokenBlock next() override;
  State state() const override;
  void set_state(const State& state) override;

 private:
  const Tokens& tokens_;
  const Vocabulary& vocabulary_;
  int64_t batch_;
  SpanCounts counts_;
  Random random_;
};

/// The text once from its start, in stretches that follow each other, `batch` at a time; spans are the same each time.
/// The text's end, where it fills no stretch, is a block of its own, or is left out with `drop_partial`.
class EvaluationSpans : public EvaluationBlocks {
 public:
  EvaluationSpans(const Tokens& tokens, const Vocabulary& vocabulary, const DataConfig& config, int64_t batch,
                  int64_t input, bool drop_partial);

  bool next(TokenBlock& block) override;
  int64_t blocks() const override;

 private:
  const Tokens& tokens_;
  const Vocabulary& vocabulary_;
  DataConfig config_;
  int64_t batch_, position_ = 0;
  SpanCounts counts_;
  bool drop_partial_;
  Random random_;
};

/// A text in which <extra_id_0>, <extra_id_1>, ... stand for the spans that are to be filled in: its tokens, and EOS.
/// Error unless they are there, each once and in this order. Of subwords the space before a gap is left to the span.
std::vector<int32_t> encode_gaps(const Vocabulary& vocabulary, std::string_view text);
/// The texts of the spans that a target gives, by the number of their sentinel; none for those that it leaves out.
using Spans = std::vector<std::optional<std::string>>;
Spans decode_spans(const Vocabulary& vocabulary, const std::vector<int32_t>& target, int64_t spans);
/// The text with spans in the places of their sentinels, which stay where there is none. A space that encode_gaps left
/// to a span is not written twice.
std::string fill_gaps(const Vocabulary& vocabulary, std::string_view text, const Spans& spans);

}  // namespace lapse
