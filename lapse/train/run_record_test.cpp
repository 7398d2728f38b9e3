#include "lapse/train/run_record.h"

#include <gtest/gtest.h>

#include <sstream>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

/// Something that is scored by nats, and has a second figure.
class Scored : public Problem {
 public:
  explicit Scored(std::vector<std::string> shown = {}) : shown_(std::move(shown)) {}

  const Vocabulary& vocabulary() const override { fail("none"); }
  std::string describe() const override { return "scored"; }
  const char* unit() const override { return "step"; }
  std::unique_ptr<Objective> objective() const override { return nullptr; }
  std::unique_ptr<Feed> feed(Group&) override { return nullptr; }
  bool validates() const override { return true; }
  void require_validation(const Group&) const override {}
  EvaluationResult validate(Transformer&, Group&) const override { return {}; }
  std::vector<Figure> figures(const Score& score) const override {
    if (score.scored == 0) return {};
    return {{"nats each", "nats", score.nats / static_cast<double>(score.scored)}, {"sum", "sum", score.nats}};
  }
  std::vector<std::string> shown() const override { return shown_; }

 private:
  std::vector<std::string> shown_;
};

Update update(double nats, int64_t scored) {
  Update made;
  made.score.nats = nats, made.score.scored = scored;
  made.score.bytes = {7, 2}, made.score.right = 3, made.score.more = {{"episodes", 2.0}};
  made.loss = scored > 0 ? nats / static_cast<double>(scored) : 0;
  made.cost = 0.5, made.gradient_norm = nats, made.rate = 0.25, made.steps = 100;
  LayerReport layer;
  layer.memory_sum = 60, layer.queries = 4, layer.memory_max = 20;
  made.reports = {{layer}};
  return made;
}

std::vector<Json> lines_of(const TestFolder& folder) {
  std::vector<Json> lines;
  std::istringstream text(read_file(folder / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "a line"));
  return lines;
}

TEST(RunRecord, ALineHasTheMeansSinceTheLastOne) {
  const TestFolder folder;
  const Scored problem;
  RunRecord record(problem, solo());
  record.write_to(folder.path(), 0, true, false);
  record.add(update(8, 4), 0.5);
  EXPECT_EQ(record.note(), "2.000 nats");
  record.add(update(0, 0), 1.5);  // nothing scored: no loss, but an update
  record.training(2, update(0, 0), true);
  record.add(update(6, 1), 2);
  record.training(3, update(6, 1), true);
  const auto lines = lines_of(folder);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0]["update"], 2);
  EXPECT_EQ(lines[0]["split"], "train");
  EXPECT_EQ(lines[0]["loss"], 2.0);
  EXPECT_EQ(lines[0]["nats"], 2.0);
  EXPECT_EQ(lines[0]["cost"], 0.5);
  EXPECT_EQ(lines[0]["gradient_norm"], 4.0);
  EXPECT_EQ(lines[0]["rate"], 0.25);
  EXPECT_EQ(lines[0]["ms_per_update"], 1000.0);
  EXPECT_EQ(lines[0]["steps_per_second"], 100.0);
  EXPECT_EQ(lines[0]["layers"][0]["memory_mean"], 15.0);
  EXPECT_EQ(lines[1]["nats"], 6.0);
  EXPECT_EQ(lines[1]["steps_per_second"], 50.0);
  EXPECT_EQ(record.note(), "6.000 nats  50 steps/s  memory 15.0");
}

TEST(RunRecord, OfUpdatesWithoutAScoreThereIsNoLoss) {
  const TestFolder folder;
  const Scored problem;
  RunRecord record(problem, solo());
  record.write_to(folder.path(), 0, true, false);
  record.add(update(0, 0), 1);
  EXPECT_EQ(record.note(), "nothing scored");
  record.training(1, update(0, 0), true);
  EXPECT_FALSE(lines_of(folder)[0].contains("loss"));
}

TEST(RunRecord, TheLastLineOfARunIsWrittenAgainWhenItGoesOn) {
  const TestFolder folder;
  const Scored problem;
  RunRecord record(problem, solo()), after(problem, solo());
  record.write_to(folder.path(), 0, true, false);
  record.add(update(8, 4), 1);
  record.training(1, update(8, 4), /*whole=*/false);
  EXPECT_EQ(lines_of(folder).at(0)["nats"], 2.0);
  const Json state = {{"sums", record.sums()}};
  after.restore(JsonObject(state, "a test").object("sums"), Json::array());
  after.write_to(folder.path(), 1, true, false);
  EXPECT_TRUE(lines_of(folder).empty());
  after.add(update(4, 2), 1);
  after.training(2, update(4, 2), /*whole=*/true);
  const auto lines = lines_of(folder);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0]["update"], 2);
  EXPECT_EQ(lines[0]["gradient_norm"], 6.0);  // the mean of both
}

TEST(RunRecord, WhatACheckpointHeldMakesTheSameLine) {
  const TestFolder whole, broken;
  const Scored problem;
  RunRecord one(problem, solo()), before(problem, solo()), after(problem, solo());
  one.write_to(whole.path(), 0, true, false), after.write_to(broken.path(), 0, true, false);
  for (RunRecord* record : {&one, &before}) record->add(update(8, 4), 1);
  const Json state = {{"sums", before.sums()}};
  after.restore(JsonObject(state, "a test").object("sums"), Json::array());
  EXPECT_EQ(after.sums(), before.sums());
  for (RunRecord* record : {&one, &after}) record->add(update(5, 2), 1), record->training(2, update(5, 2), true);
  Json a = lines_of(whole)[0], b = lines_of(broken)[0];
  for (const char* measured : {"ms_per_update", "steps_per_second", "resident_memory", "peak_memory"})
    a.erase(measured), b.erase(measured);
  EXPECT_EQ(a, b);
}

TEST(RunRecord, ValidationsAreRememberedAndSaid) {
  const TestFolder folder;
  const Scored problem({"nats", "sum"});
  RunRecord record(problem, solo());
  record.write_to(folder.path(), 0, true, false);
  EvaluationResult result{.nats = 1.5, .tokens = 30, .seconds = 2};
  result.score.nats = 3, result.score.scored = 2;
  result.layers = {{7, 9, 0, 0}};
  record.validation(40, result);
  EXPECT_EQ(record.newest_validation(), "1.5000 nats  3.0000 sum");
  EXPECT_EQ(record.note(), "  valid 1.500 nats");
  EXPECT_EQ(record.validations().dump(), R"([{"update":40,"loss":1.5,"nats":1.5}])");
  const Json line = lines_of(folder)[0];
  EXPECT_EQ(line["split"], "valid");
  EXPECT_EQ(line["steps"], 30);
  EXPECT_EQ(line["whole"], true);
  EXPECT_EQ(line["steps_per_second"], 15.0);
  EXPECT_EQ(line["layers"].dump(), R"([{"memory_mean":7.0,"memory_max":9.0}])");
}

}  // namespace
}  // namespace lapse
