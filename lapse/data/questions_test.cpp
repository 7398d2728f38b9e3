#include "lapse/data/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class QuestionsTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& text, const std::string& name = "q.jsonl") const {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  std::vector<Question> read(const std::string& text) const { return read_questions(file(text), {}); }
  std::string error(const std::string& text) const {
    return error_of([&] { read(text); });
  }

  TestFolder folder_;
};

TEST_F(QuestionsTest, OfEveryForm) {
  const auto all = read(
      R"({"context": "The sky is ", "choices": [" blue", "green"], "answer": 0, "note": 1}
{"ind": 4, "activity_label": "Baking", "ctx": "The sky is", "endings": ["green", "blue"], "label": 1, "split": "val"}

{"ctx": "The sky is", "endings": ["green", "blue"], "label": "1"}
{"id": "M_1", "question": {"stem": "The sky is", "choices": [{"text": "green", "label": "A"}, {"text": "blue", "label": "B"}]}, "answerKey": "B"}
{"question": {"stem": "The sky is", "choices": [{"label": "1", "text": "blue"}, {"label": "2", "text": "red"}], "question_concept": "sky"}, "answerKey": "1"}
{"goal": "The sky is", "sol1": "red", "sol2": "blue\n", "label": 1}
{"goal": "The sky is", "sol1": "red", "sol2": "blue", "label": "1"}
{"question": "The sky is", "question_concept": "sky", "choices": {"label": ["A", "B"], "text": ["red", "blue"]}, "answerKey": "B"}
{"question_stem": "The sky is", "choices": {"text": ["blue", "red"], "label": ["A", "B"]}, "answerKey": "A"})");
  ASSERT_EQ(all.size(), 9u);
  for (const auto& question : all) {
    EXPECT_EQ(question.context, "The sky is");
    EXPECT_EQ(question.candidates[question.answer], "blue");
  }
  EXPECT_THAT(all[3].candidates, ElementsAre("green", "blue"));
  EXPECT_THAT(all[5].origin, HasSubstr("q.jsonl:7"));
}

TEST_F(QuestionsTest, LabelsOfAFileOfTheirOwn) {
  const auto path = file(R"({"goal": "a", "sol1": "b", "sol2": "c"}
{"goal": "a", "sol1": "b", "sol2": "c"})");
  const auto all = read_questions(path, file("1\n0\n", "labels"));
  EXPECT_EQ(all[0].answer, 1);
  EXPECT_EQ(all[1].answer, 0);
  // Files without public answers have something in their place.
  const auto hidden = file(R"({"goal": "a", "sol1": "b", "sol2": "c", "label": -1}
{"question_stem": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "?"})",
                           "hidden");
  EXPECT_EQ(read_questions(hidden, file("1\n0\n", "labels"))[0].answer, 1);
  EXPECT_THAT(error_of([&] { read_questions(hidden, ""); }), HasSubstr("'label'"));
  const auto error = [&](const std::string& labels) {
    return error_of([&] { read_questions(path, file(labels, "labels")); });
  };
  EXPECT_THAT(error("1\n"), HasSubstr("1 labels for 2 questions"));
  EXPECT_THAT(error("1\n0\n1\n"), HasSubstr("labels:3: more labels"));
  EXPECT_THAT(error("1\n2\n"), HasSubstr("labels:2: the label must be a whole number of 0 ... 1"));
  EXPECT_THAT(error("1\nb\n"), HasSubstr("labels:2"));
}

TEST_F(QuestionsTest, ErrorsNameFileLineAndWhatIsMissing) {
  const std::string good = R"({"context": "a", "choices": ["b", "c"], "answer": 1})";
  const auto second = [&](const std::string& line) {
    const std::string message = error(good + "\n" + line);
    EXPECT_THAT(message, AllOf(HasSubstr("q.jsonl:2: "), Not(HasSubstr("\n"))));
    return message;
  };
  EXPECT_THAT(second("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(second("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(second(R"({"text": 1})"),
              HasSubstr("none of the keys 'context', 'ctx', 'question', 'question_stem', 'goal'"));
  EXPECT_THAT(second(R"({"context": "a", "answer": 1})"), HasSubstr("'choices' must be a list of texts"));
  EXPECT_THAT(second(R"({"context": "a", "choices": ["b", 1], "answer": 1})"), HasSubstr("'choices'"));
  EXPECT_THAT(second(R"({"context": "a", "choices": ["b", "c"]})"),
              AllOf(HasSubstr("'answer'"), HasSubstr("--labels")));
  EXPECT_THAT(second(R"({"context": "a", "choices": ["b", "c"], "answer": 2})"), HasSubstr("0 ... 1"));
  EXPECT_THAT(second(R"({"context": "a", "choices": ["b"], "answer": 0})"), HasSubstr("fewer than two"));
  EXPECT_THAT(second(R"({"context": "a", "choices": [], "answer": 0})"), HasSubstr("fewer than two"));
  EXPECT_THAT(second(R"({"context": "a", "choices": ["b", " "], "answer": 0})"), HasSubstr("empty"));
  EXPECT_THAT(second(R"({"ctx": "a", "label": 1})"), HasSubstr("'endings'"));
  EXPECT_THAT(second(R"({"ctx": "a", "endings": ["b", "c"], "label": "2"})"), HasSubstr("'label' must be a whole"));
  EXPECT_THAT(second(R"({"ctx": "a", "endings": ["b", "c"], "label": ""})"), HasSubstr("'label' is missing"));
  EXPECT_THAT(second(R"({"goal": "a", "sol1": "b", "label": 1})"), HasSubstr("'sol2'"));
  EXPECT_THAT(second(R"({"question": {"choices": []}})"), HasSubstr("'question.stem'"));
  EXPECT_THAT(second(R"({"question": {"stem": "a", "choices": [{"label": "A"}]}, "answerKey": "A"})"),
              HasSubstr("'question.choices[0].text'"));
  EXPECT_THAT(second(R"({"question": {"stem": "a", "choices": [{"label": "A", "text": "b"}]}, "answerKey": "B"})"),
              HasSubstr("'answerKey' must be the label"));
  const std::string twice = R"([{"label": "A", "text": "b"}, {"label": "A", "text": "c"}])";
  EXPECT_THAT(second(R"({"question": {"stem": "a", "choices": )" + twice + R"(}, "answerKey": "A"})"),
              HasSubstr("not of several"));
  EXPECT_THAT(second(R"({"question": "a", "choices": {"text": ["b", "c"], "label": ["A"]}, "answerKey": "A"})"),
              HasSubstr("'choices' must be of as many labels as texts"));
  EXPECT_THAT(
      second(R"({"question_stem": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "C"})"),
      HasSubstr("'answerKey' must be the label of one of choices.label"));
  EXPECT_THAT(
      second(R"({"question_stem": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": ""})"),
      HasSubstr("'answerKey' is missing"));
  EXPECT_THAT(error("\n"), HasSubstr("no question"));
}

}  // namespace
}  // namespace lapse
