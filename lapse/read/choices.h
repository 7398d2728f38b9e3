// Multiple choice: how likely a model finds each of several candidates after a context.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lapse/data/questions.h"
#include "lapse/data/vocabulary.h"
#include "lapse/model/transformer.h"

namespace lapse {

/// A question in tokens: BOS, where the vocabulary has it, and the context; and what each candidate adds.
struct QuestionTokens {
  std::vector<int32_t> context;
  std::vector<std::vector<int32_t>> candidates;
  std::vector<int64_t> unknown_bytes;  ///< of each candidate: TextBytes::unknown; empty: none
  bool truncated = false;              ///< the context has lost its beginning
};

/// One space is between context and candidate. Error if there is nothing before the candidates.
QuestionTokens tokens_of(const Question& question, const Vocabulary& vocabulary);

/// Takes so many tokens off the context's left, BOS aside, that the longest candidate fits a model that reads streams
/// of at most `longest` tokens (0: any). Error if it does not fit at all.
void shorten(QuestionTokens& tokens, int64_t longest, bool has_bos);

/// -log p of each candidate after the context, summed over its tokens; a byte that they do not tell, as of a word that
/// the vocabulary lacks, costs 8 bits, as in bits per byte. The context is read once; copies of its memory then read
/// the candidates, side by side.
std::vector<double> candidate_nats(Transformer& model, const QuestionTokens& question);

struct ChoicesResult {
  std::vector<double> right,
      right_per_byte;     ///< of each question, 1 or 0: of the likeliest candidate, or per byte of it
  int64_t truncated = 0;  ///< questions whose context did not fit
  int64_t left_out = 0;   ///< questions that the model cannot read: they are neither right nor wrong
  std::string why;        ///< of the first of these, with its origin
  int64_t tokens = 0;     ///< read
  double seconds = 0;
  bool stopped = false;  ///< by Ctrl-C, before the end
};

/// All questions that the model can read, one after the other. `progress` is called after each. Of equally likely
/// candidates the first counts. Error if there is none that it can read.
ChoicesResult answer_questions(Transformer& model, const Vocabulary& vocabulary, const std::vector<Question>& questions,
                               const std::function<void(const ChoicesResult& so_far)>& progress = {});

}  // namespace lapse
