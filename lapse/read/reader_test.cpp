// Options of reading: they choose how a model is read, and leave the configuration that it was trained with alone.
#include "lapse/read/reader.h"

#include <gmock/gmock.h>

#include "lapse/core/testing.h"
#include "lapse/forgetting/budgets.h"
#include "lapse/train/optimiser.h"

namespace lapse {
namespace {

using testing::HasSubstr;

/// A run that has a checkpoint of fresh weights and nothing else.
class Readers : public testing::Test {
 protected:
  void write(const std::string& method, const std::string& assignment = "train.batch=3") {
    config_.method_name = method;
    config_.model.width = 8, config_.model.heads = 2, config_.model.layers = 2, config_.train.block = 4;
    set_config(config_.sections(), assignment);
    const Vocabulary vocabulary = Vocabulary::build(config_.data, "abc");
    Transformer model(config_.model, config_.method(), vocabulary.size(), config_.train.block, Random(1, "weights"));
    const Optimiser optimiser(config_.optimiser, model.parameters());
    write_checkpoint(folder_.path(), 1, 1, config_, vocabulary, optimiser, {}, "{}");
  }

  /// How far back the model reads, in rows, after more tokens than it can remember.
  int64_t rows(const ReadingOptions& options) const {
    const auto model = open_reader(options).model();
    auto memory = model->begin(1, Stored::projections);
    for (int i = 0; i < 40; ++i) model->forward(at::full({1, 1}, i % 3, at::kLong), memory, {});
    return memory.layers[0].rows();
  }

  std::string run() const { return folder_.path().string(); }

  Config config_;
  TestFolder folder_;
};

TEST_F(Readers, ReadAsTrainedUnlessToldOtherwise) {
  write("fixed_span", "fixed_span.max_span=12");
  EXPECT_EQ(rows({.run = run()}), 12);
  EXPECT_EQ(rows({.run = run(), .of_method = {{"max_span", "5"}}}), 5);
  EXPECT_EQ(rows({.run = run(), .method = "local", .of_method = {{"budget", "7"}}}), 7);
}

TEST_F(Readers, LeaveTheTrainedConfigurationAlone) {
  write("fixed_span");
  const Reader reader = open_reader({.run = run(), .method = "local", .of_method = {{"budget", "7"}}});
  EXPECT_EQ(reader.method->name(), "local");
  EXPECT_EQ(reader.config().method_name, "fixed_span");
  EXPECT_EQ(reader.config().to_toml(), config_.to_toml());
}

TEST_F(Readers, AMethodInTheRunsPlaceHasTheRunsOptionsOfIt) {
  write("fixed_span", "local.window=9");
  EXPECT_EQ(rows({.run = run(), .method = "local"}), 9);
}

TEST_F(Readers, RefuseOptionsThatNothingReads) {
  write("fixed_span");
  const auto error = [&](ReadingOptions options) {
    options.run = run();
    return error_of([&] { open_reader(options); });
  };
  EXPECT_EQ(error({.of_method = {{"sinks", "4"}}}),
            "--sinks is no option of the run's method, fixed_span; the methods that have it: sink_window");
  EXPECT_THAT(error({.method = "tova", .of_method = {{"max_span", "4"}}}),
              HasSubstr("--max-span is no option of --method tova; the methods that have it: fixed_span"));
  EXPECT_THAT(error({.of_task = {{"test_seed", "2"}}}), HasSubstr("--test-seed is no option of the run, which reads"));
  EXPECT_THAT(error({.of_method = {{"max_span", "many"}}}), HasSubstr("--max-span: expected an integer"));
  EXPECT_THAT(error({.method = "expire_span"}), HasSubstr("which must be trained"));
  EXPECT_THAT(error({.method = "locl"}), HasSubstr("did you mean 'local'"));
}

TEST_F(Readers, SaveWithOtherBudgetsOnly) {
  write("selective_attention");
  const Reader reader = open_reader({.run = run()});
  Config pruned = reader.config();
  budgets_of(pruned.method()).budgets() = {5, 3};
  reader.checkpoint.save_as(folder_ / "pruned.safetensors", pruned);
  EXPECT_EQ(rows({.run = folder_ / "pruned.safetensors"}), 5);
  EXPECT_THAT(reader.config().to_toml(), HasSubstr("budgets = []"));
}

TEST(Budgets, AreOfFewMethods) {
  Config config;
  EXPECT_TRUE(has_budgets(*config.copy_method("selective_attention")));
  EXPECT_FALSE(has_budgets(*config.copy_method("fixed_span")));
  EXPECT_THAT(error_of([&] { budgets_of(*config.copy_method("local")); }), HasSubstr("local has no budgets"));
}

}  // namespace
}  // namespace lapse
