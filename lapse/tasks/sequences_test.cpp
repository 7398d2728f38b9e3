// Each task of sequences against a solver written from its rules: it reads the tokens' names alone.
#include "lapse/tasks/sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

/// One sequence by the names of its tokens ("" for BOS); "-" where nothing is scored.
struct Named {
  std::vector<std::string> input, target;
};

std::vector<Named> sequences(const TaskOptions& task, const std::string& part = "test") {
  const auto source = task.open();
  const auto name = [&](int64_t id) {
    if (id == kUnscored) return std::string("-");
    std::string text = source->vocabulary().decode(static_cast<int32_t>(id));
    return text.empty() ? text : text.substr(0, text.size() - 1);
  };
  std::vector<Named> all;
  const auto blocks = source->evaluation(part, 16, task.window(), false);
  for (TokenBlock block; blocks->next(block);)
    for (int64_t b = 0; b < block.batch; ++b) {
      Named one;
      for (int64_t i = 0; i < block.lengths[b]; ++i) {
        one.input.push_back(name(block.input[b * block.length + i]));
        one.target.push_back(name(block.target[b * block.length + i]));
      }
      all.push_back(one);
    }
  return all;
}

void expect_assignments(const Named& one, size_t repetitions, std::set<std::string>& values,
                        std::set<std::string>& asked) {
  ASSERT_EQ(one.input.size(), 2 * repetitions + 2);
  EXPECT_EQ(one.input[0], "");
  std::map<std::string, std::string> last;
  for (size_t i = 1; i + 1 < one.input.size(); i += 2) {
    ASSERT_EQ(one.input[i].back(), '=');
    last[one.input[i]] = one.input[i + 1];
    values.insert(one.input[i + 1]);
  }
  const std::string& question = one.input.back();
  ASSERT_EQ(question.back(), '?');
  asked.insert(question);
  for (size_t i = 0; i + 1 < one.target.size(); ++i) EXPECT_EQ(one.target[i], "-");
  EXPECT_EQ(one.target.back(), last.at(question.substr(0, question.size() - 1)));
}

TEST(VariableAssignment, AsksForTheLastValue) {
  const auto task = make_task("variable_assignment", {{"test_sequences", "300"}});
  std::set<std::string> values, asked;
  for (const Named& one : sequences(*task)) expect_assignments(one, 128, values, asked);
  EXPECT_EQ(values.size(), 1000u);
  EXPECT_THAT(asked, testing::ElementsAre("X=?", "Y=?", "Z=?"));
}

TEST(VariableAssignment, OfOtherSizes) {
  const auto task = make_task("variable_assignment", {{"variables", "10"}, {"values", "10"}, {"repetitions", "3"}});
  std::set<std::string> values, asked;
  for (const Named& one : sequences(*task)) expect_assignments(one, 3, values, asked);
  EXPECT_EQ(values.size(), 10u);
  EXPECT_EQ(asked.size(), 10u);
}

TEST(VariableAssignment, OutOfDistributionKeepsToAFewOfTheTrainedValues) {
  std::set<std::set<std::string>> chosen;
  for (const char* seed : {"1", "2", "3", "4"}) {
    const auto task =
        make_task("variable_assignment", {{"ood_values", "2"}, {"test_seed", seed}, {"test_sequences", "40"}});
    std::set<std::string> values, asked;
    for (const Named& one : sequences(*task)) expect_assignments(one, 128, values, asked);
    EXPECT_EQ(values.size(), 2u);
    chosen.insert(values);
  }
  EXPECT_EQ(chosen.size(), 4u) << "another test set has other values";
}

TEST(Copy, RepeatsTheString) {
  const auto task = make_task("copy", {});
  EXPECT_EQ(task->window(), 50);  // the paper's context of 51 has the last EOS, which is never read
  std::map<size_t, int> lengths;
  std::set<std::string> letters;
  for (const Named& one : sequences(*task)) {
    EXPECT_EQ(one.input[0], "");
    const auto bar = std::ranges::find(one.input, "|");
    ASSERT_NE(bar, one.input.end());
    const std::vector<std::string> string(one.input.begin() + 1, bar);
    ++lengths[string.size()];
    letters.insert(string.begin(), string.end());
    EXPECT_EQ(std::vector(bar + 1, one.input.end()), string);
    std::vector<std::string> expected(string.size() + 1, "-");
    expected.insert(expected.end(), string.begin(), string.end());
    expected.push_back("<eos>");
    EXPECT_EQ(one.target, expected);
  }
  ASSERT_EQ(lengths.size(), 24u);
  EXPECT_EQ(lengths.begin()->first, 1u);
  for (const auto& [length, count] : lengths) EXPECT_NEAR(count, 2048 / 24, 45) << length;  // 5 standard deviations
  EXPECT_EQ(letters.size(), 26u);
}

TEST(Parity, StandsAfterEachBit) {
  const auto task = make_task("parity", {{"bits", "20"}});
  EXPECT_EQ(task->window(), 40);
  int64_t ones = 0, bits = 0;
  for (const Named& one : sequences(*task)) {
    ASSERT_EQ(one.input.size(), 40u);
    EXPECT_EQ(one.input[0], "");
    int64_t sum = 0;
    for (size_t i = 0; i < one.input.size(); ++i) {
      if (i % 2 == 0) {
        EXPECT_EQ(one.target[i], "-");
        if (i > 0) {
          EXPECT_EQ(one.input[i], one.target[i - 1]) << "the parity is read too";
        }
        continue;
      }
      sum += one.input[i] == "1", ones += one.input[i] == "1", ++bits;
      EXPECT_EQ(one.target[i], sum % 2 == 1 ? "1" : "0");
    }
  }
  EXPECT_NEAR(static_cast<double>(ones) / static_cast<double>(bits), 0.5, 0.02);
}

TEST(EvaluationSequences, DoNotDependOnTheBatch) {
  const auto task = make_task("copy", {{"test_sequences", "37"}});
  const auto source = task->open();
  const auto read = [&](int64_t batch) {
    std::vector<std::vector<int64_t>> all;
    const auto blocks = source->evaluation("test", batch, 50, false);
    for (TokenBlock block; blocks->next(block);)
      for (int64_t b = 0; b < block.batch; ++b) {
        const auto begin = block.input.begin() + b * block.length;
        all.emplace_back(begin, begin + block.lengths[b]);
      }
    return all;
  };
  EXPECT_EQ(read(1).size(), 37u);
  EXPECT_EQ(read(1), read(5));
  EXPECT_EQ(read(1), read(100));
}

}  // namespace
}  // namespace lapse
