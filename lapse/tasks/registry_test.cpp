// What holds of every task: seeds, resuming, shapes, figures.
#include "lapse/tasks/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lapse/core/testing.h"
#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

constexpr int64_t kBlock = 32;

class Tasks : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<TaskOptions> task_ = make_task(GetParam(), small(GetParam()));
  std::unique_ptr<Source> source_ = task_->open();

  std::unique_ptr<TrainingBlocks> training(uint64_t seed, int64_t batch = 3) {
    return source_->training(batch, kBlock, Random(seed, "text"));
  }
};
INSTANTIATE_TEST_SUITE_P(All, Tasks, testing::ValuesIn(task_names()));

TEST_P(Tasks, GiveBlocksOfTheRightShape) {
  const auto blocks = training(1);
  const int64_t window = task_->window();
  int64_t longest = 0;
  for (int n = 0; n < 200; ++n) {
    const TokenBlock block = blocks->next();
    ASSERT_EQ(block.batch, 3);
    ASSERT_EQ(std::ssize(block.input), block.batch * block.length);
    ASSERT_EQ(block.target.size(), block.input.size());
    if (window > 0) {
      EXPECT_TRUE(block.restart);
      ASSERT_EQ(std::ssize(block.lengths), block.batch);
      EXPECT_EQ(*std::ranges::max_element(block.lengths), block.length);
      longest = std::max(longest, block.length);
    } else {
      EXPECT_TRUE(block.lengths.empty());
      EXPECT_EQ(block.length, kBlock);
    }
    for (int64_t i = 0; i < std::ssize(block.input); ++i) {
      ASSERT_TRUE(block.input[i] >= 0 && block.input[i] < source_->vocabulary().size());
      ASSERT_TRUE(block.target[i] == kUnscored ||
                  (block.target[i] >= 0 && block.target[i] < source_->vocabulary().outputs()));
      if (window > 0 && i % block.length == 0) {
        EXPECT_EQ(block.input[i], source_->vocabulary().bos());
      }
      if (window > 0 && i % block.length >= block.lengths[i / block.length]) {
        EXPECT_EQ(block.target[i], kUnscored) << "padding";
      }
    }
  }
  EXPECT_EQ(longest, window);
}

TEST_P(Tasks, ResumeExactlyFromAnywhere) {
  for (const int before : {0, 1, 7, 40}) {
    const auto whole = training(5), resumed = training(5);
    for (int n = 0; n < before; ++n) whole->next();
    resumed->set_state(whole->state());
    EXPECT_EQ(resumed->state().restart, whole->state().restart);
    for (int n = 0; n < 60; ++n) {
      const TokenBlock a = whole->next(), b = resumed->next();
      ASSERT_TRUE(a.input == b.input && a.target == b.target && a.restart == b.restart) << before << " " << n;
    }
  }
}

/// Inputs and targets in turns, without the padding.
void append(const TokenBlock& block, std::vector<int64_t>& all) {
  EXPECT_TRUE(block.answers);
  for (int64_t b = 0; b < block.batch; ++b) {
    const int64_t length = block.lengths.empty() ? block.length : block.lengths[b];
    for (int64_t i = 0; i < length; ++i) {
      all.push_back(block.input[b * block.length + i]);
      all.push_back(block.target[b * block.length + i]);
    }
  }
}

std::vector<int64_t> read(EvaluationBlocks& blocks) {
  std::vector<int64_t> all;
  int64_t count = 0;
  for (TokenBlock block; blocks.next(block); ++count) {
    EXPECT_EQ(block.restart, count == 0 || !block.lengths.empty());
    append(block, all);
  }
  EXPECT_EQ(count, blocks.blocks());
  TokenBlock after;
  EXPECT_FALSE(blocks.next(after));
  return all;
}

TEST_P(Tasks, DrawEverySplitFromAStreamOfItsOwn) {
  const auto valid = read(*source_->evaluation("valid", 1, kBlock, false));
  EXPECT_EQ(read(*source_->evaluation("valid", 1, kBlock, false)), valid) << "the same again";
  const auto test = read(*source_->evaluation("test", 1, kBlock, false));
  const auto other = make_task(GetParam(), [&] {
    auto settings = small(GetParam());
    settings.emplace_back("test_seed", "2");
    return settings;
  }());
  const auto other_source = other->open();
  const auto second = read(*other_source->evaluation("test", 1, kBlock, false));
  std::vector<std::vector<int64_t>> trained;
  for (const uint64_t seed : {1, 2}) {
    const auto blocks = training(seed, 1);
    auto& all = trained.emplace_back();
    while (all.size() < 200) append(blocks->next(), all);
  }
  // The beginnings tell them apart: no two streams begin with the same 100 inputs and targets.
  std::set<std::vector<int64_t>> beginnings;
  for (const auto& stream : {valid, test, second, trained[0], trained[1]})
    beginnings.emplace(stream.begin(), stream.begin() + 200);
  EXPECT_EQ(beginnings.size(), 5u);
}

TEST_P(Tasks, HaveTheSplitsTheySay) {
  EXPECT_TRUE(source_->has("valid") && source_->has("test"));
  EXPECT_THAT(error_of([&] { source_->evaluation("all", 1, kBlock, false); }), testing::HasSubstr("no split 'all'"));
  EXPECT_GE(source_->streams("test", kBlock, 4), 1);
  EXPECT_LE(source_->streams("test", kBlock, 4), 4);
  EXPECT_FALSE(source_->describe().empty());
  EXPECT_EQ(source_->vocabulary().unit().name, task_->unit());
}

TEST_P(Tasks, ReportAccuracy) {
  const bool text = GetParam() == "instruction";  // which always has whole answers, and a perplexity
  const auto figures = [&](const Score& score) {
    std::vector<std::pair<std::string, double>> all;
    for (const Figure& figure : source_->figures(score)) all.emplace_back(figure.tag, figure.value);
    return all;
  };
  EXPECT_TRUE(figures({}).empty());
  const std::pair<std::string, double> accuracy = {"accuracy", 0.7}, whole = {"answer_accuracy", 0.25},
                                       perplexity = {"ppl", std::exp(0.5)};
  if (!text) {
    EXPECT_THAT(figures({.scored = 10, .right = 7, .answers = 10, .right_answers = 7}), testing::ElementsAre(accuracy));
  }
  const auto both = figures({.nats = 5, .scored = 10, .right = 7, .answers = 4, .right_answers = 1});
  if (text)
    EXPECT_THAT(both, testing::ElementsAre(whole, perplexity, accuracy));
  else if (GetParam() == "long_copy")
    EXPECT_THAT(both, testing::ElementsAre(whole, accuracy));
  else
    EXPECT_THAT(both, testing::ElementsAre(accuracy, whole));
}

TEST(TaskTable, NamesAreThoseOfTheOptions) {
  for (const auto& entry : task_table()) EXPECT_EQ(entry.options()->name(), entry.name);
}

}  // namespace
}  // namespace lapse
