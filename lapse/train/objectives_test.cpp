#include "lapse/train/objectives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/testing.h"
#include "lapse/train/setup.h"

namespace lapse {
namespace {

Config small(const std::string& task, const std::string& objective) {
  Config config;
  config.task_name = task;
  config.model.width = 8, config.model.layers = 1, config.model.heads = 2;
  config.train.batch = 16, config.train.block = 128, config.train.objective = objective;
  config.method_name = "fixed_span";
  return config;
}

TEST(Objectives, AreChosenByWhatTheRunReads) {
  EXPECT_EQ(objective_of(small("none", "usual")).name, "language_modelling");
  EXPECT_EQ(objective_of(small("parity", "usual")).name, "scored_task");
  EXPECT_EQ(objective_of(small("corridor", "usual")).name, "actor_critic");
  EXPECT_EQ(objective_of(small("parity", "language_modelling")).name, "language_modelling");
}

TEST(Objectives, EachMakesAnUpdateWhereItFits) {
  for (const auto& entry : objective_table()) {
    SCOPED_TRACE(entry.name);
    EXPECT_FALSE(entry.help.empty());
    const Config config = small(entry.acts ? "corridor" : "parity", entry.name),
                 other = small(entry.acts ? "parity" : "corridor", entry.name);
    EXPECT_EQ(error_of([&] { config.check(); }), "");
    EXPECT_NE(error_of([&] { other.check(); }).find("train.objective = \"" + entry.name + "\" is for"),
              std::string::npos);
    const auto problem = open_problem(config, nullptr);
    const auto learner = make_learner(config, *problem);
    const auto feed = problem->feed(solo());
    Update made;
    int64_t right = 0;
    for (int n = 0; n < 40; ++n) made = feed->update(*learner, false), right += made.score.right;
    EXPECT_TRUE(std::isfinite(made.loss));
    EXPECT_GT(made.gradient_norm, 0);
    if (!entry.acts) {
      EXPECT_GT(right, 0) << "right answers are counted, whatever the objective";
    }
  }
}

}  // namespace
}  // namespace lapse
