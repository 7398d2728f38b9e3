#include "lapse/read/choices.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/testing.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

std::vector<int32_t> draw(Random& random, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(random.below(kVocabulary)));
  return ids;
}

/// The slow way: context and candidate read as one stream, from empty memory, token by token.
double nats_alone(Transformer& model, const std::vector<int32_t>& context, const std::vector<int32_t>& candidate) {
  at::NoGradGuard no_grad;
  ModelMemory memory = model.begin(1, Stored::projections);
  std::vector<int32_t> all = context;
  all.insert(all.end(), candidate.begin(), candidate.end());
  double nats = 0;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const auto y = model.forward(at::full({1, 1}, all[i], at::kLong), memory, {});
    if (i + 1 >= context.size()) nats -= at::log_softmax(y.logits, 2)[0][0][all[i + 1]].item<double>();
  }
  return nats;
}

// Contexts of one token to several blocks, longer than memories live; candidates of very different lengths.
TEST(CandidateNats, AreThoseOfWholeReadingsForEveryMethod) {
  for (const auto& entry : method_table())
    for (const char* norm : {"pre", "post"}) {
      SCOPED_TRACE(entry.name + ", " + norm);
      const auto model = tiny_model(tiny_config(norm), *method_options(entry.name), at::kDouble);
      Random random(5, "questions");
      for (const int64_t length : {1, 2, 7, 8, 9, 50}) {
        const QuestionTokens question{draw(random, length), {draw(random, 1), draw(random, 30), draw(random, 4)}};
        const auto nats = candidate_nats(*model, question);
        for (size_t c = 0; c < nats.size(); ++c)
          EXPECT_NEAR(nats[c], nats_alone(*model, question.context, question.candidates[c]), 1e-9)
              << length << " " << c;
      }
    }
}

TEST(CandidateNats, UnderBudgets) {
  for (const char* method : {"selective_attention", "h2o", "tova"}) {
    SCOPED_TRACE(method);
    const bool selective = method == std::string("selective_attention");
    const auto options = method_options(method, {{selective ? "budgets" : "budget", selective ? "[5, 9]" : "6"}});
    const auto model = tiny_model(tiny_config("pre"), *options, at::kDouble);
    Random random(6, "questions");
    const QuestionTokens question{draw(random, 20), {draw(random, 3), draw(random, 12)}};
    const auto nats = candidate_nats(*model, question);
    for (size_t c = 0; c < nats.size(); ++c)
      EXPECT_NEAR(nats[c], nats_alone(*model, question.context, question.candidates[c]), 1e-9) << c;
  }
}

TEST(QuestionTokens, HaveOneSpaceBetweenContextAndCandidate) {
  DataConfig config;
  const auto streams = Vocabulary::build(config, "text");
  config.windows = true;
  const auto windows = Vocabulary::build(config, "text");
  const Question question{"ab", {"c", "de"}, 0, "q:1"};
  EXPECT_EQ(tokens_of(question, streams).context, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(tokens_of(question, windows).context, (std::vector<int32_t>{256, 'a', 'b'}));
  EXPECT_EQ(tokens_of(question, windows).candidates[1], (std::vector<int32_t>{' ', 'd', 'e'}));
  const Question bare{"", {"c", "de"}, 0, "q:1"};
  EXPECT_EQ(tokens_of(bare, windows).context, (std::vector<int32_t>{256}));
  EXPECT_EQ(tokens_of(bare, windows).candidates[0], (std::vector<int32_t>{'c'}));
  EXPECT_NE(error_of([&] { tokens_of(bare, streams); }).find("the context is empty"), std::string::npos);
}

// Else a word that nobody knows would be as cheap as the likeliest: they are one token.
TEST(QuestionTokens, CountWhatTheyDoNotTell) {
  DataConfig config;
  config.unit = "word";
  const auto words = Vocabulary::build(config, "a b c a b c a b c");
  const QuestionTokens tokens = tokens_of({"a", {"b c", "qwertyuiop", "b zz"}, 0, "q:1"}, words);
  EXPECT_EQ(tokens.unknown_bytes, (std::vector<int64_t>{0, 11, 3}));  // each with the space before it
  const auto model = tiny_model(tiny_config("pre"), *method_options("fixed_span"), at::kDouble);
  QuestionTokens known = tokens;
  known.unknown_bytes.clear();
  const auto nats = candidate_nats(*model, tokens), bare = candidate_nats(*model, known);
  for (size_t c = 0; c < nats.size(); ++c)
    EXPECT_NEAR(nats[c], bare[c] + 8 * std::log(2.) * static_cast<double>(tokens.unknown_bytes[c]), 1e-12);
}

TEST(QuestionTokens, AreShortenedOnTheLeft) {
  const auto context = [](int64_t longest, bool has_bos) {
    QuestionTokens tokens{{9, 1, 2, 3, 4}, {{5}, {5, 6, 7}}};
    shorten(tokens, longest, has_bos);
    EXPECT_EQ(tokens.truncated, tokens.context.size() < 5);
    return tokens.context;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(context(0, true), (Ids{9, 1, 2, 3, 4}));
  EXPECT_EQ(context(7, true), (Ids{9, 1, 2, 3, 4}));  // 4 and 3 are read
  EXPECT_EQ(context(5, true), (Ids{9, 3, 4}));
  EXPECT_EQ(context(5, false), (Ids{2, 3, 4}));
  EXPECT_EQ(context(3, true), (Ids{9}));
  EXPECT_EQ(context(3, false), (Ids{4}));
  EXPECT_NE(error_of([&] { context(2, true); }).find("has 3 tokens"), std::string::npos);
}

// Learned positions end with the window: what is left of the context is read from the window's start.
TEST(AnswerQuestions, CountsWhatIsRightAndWhatIsTruncated) {
  DataConfig data;
  data.windows = true;
  const auto vocabulary = Vocabulary::build(data, "text");
  ModelConfig config = tiny_config("pre");
  config.positions = "absolute";
  Transformer model(config, *method_options("fixed_span"), vocabulary.size(), 16, Random(1, "weights"));
  std::vector<Question> questions = {{"a short one", {"a", "bcd"}, 0, "q:1"},
                                     {"one that is longer than the window", {"abc", "d"}, 0, "q:2"}};
  double right = 0, right_per_byte = 0;
  for (Question& question : questions) {
    QuestionTokens tokens = tokens_of(question, vocabulary);
    shorten(tokens, 16, true);
    const double a = nats_alone(model, tokens.context, tokens.candidates[0]),
                 b = nats_alone(model, tokens.context, tokens.candidates[1]);
    right += a <= b;
    right_per_byte += a / static_cast<double>(question.candidates[0].size()) <=
                      b / static_cast<double>(question.candidates[1].size());
  }
  const auto result = answer_questions(model, vocabulary, questions);
  EXPECT_EQ(result.truncated, 1);
  EXPECT_EQ(result.right[0] + result.right[1], right);
  EXPECT_EQ(result.right_per_byte[0] + result.right_per_byte[1], right_per_byte);
  questions[1].candidates[0] = std::string(20, 'x');
  const auto rest = answer_questions(model, vocabulary, questions);
  EXPECT_EQ(rest.left_out, 1);
  EXPECT_NE(rest.why.find("q:2: a candidate has 21 tokens"), std::string::npos);
  EXPECT_EQ(rest.right, std::vector<double>{result.right[0]});
  EXPECT_EQ(rest.right_per_byte, std::vector<double>{result.right_per_byte[0]});
  questions.erase(questions.begin());
  EXPECT_NE(error_of([&] { answer_questions(model, vocabulary, questions); }).find("q:2: "), std::string::npos);
}

}  // namespace
}  // namespace lapse
