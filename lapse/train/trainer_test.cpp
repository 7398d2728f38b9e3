// The trainer in this process: what a run's folder holds, and that it goes on to the bit.
#include "lapse/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/testing.h"
#include "lapse/ops/aten.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/run_folder.h"

namespace lapse {
namespace {

class Trainer : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "a line of text, number " + std::to_string(i * i % 97) + "\n";
    write_file(folder_ / "text.txt", text);
  }

  Config config(int64_t updates = 12) const {
    Config config;
    config.data.path = (folder_ / "text.txt").string();
    config.model.width = 8, config.model.layers = 2, config.model.heads = 2;
    config.train.batch = 4, config.train.block = 16, config.train.updates = updates, config.train.threads = 1;
    config.train.log_every = 2, config.train.validate_every = 4, config.train.checkpoint_every = 5;
    config.train.keep = 3;
    return config;
  }

  Outcome train(const std::string& run, const Config& config, bool resume = false) const {
    return lapse::train(config, folder_ / run, {.resume = resume, .quiet = true});
  }

  std::vector<int64_t> checkpoints(const std::string& run) const {
    std::vector<int64_t> updates;
    for (const auto& file : checkpoints_of(folder_ / run)) updates.push_back(update_of(file));
    std::ranges::sort(updates);
    return updates;
  }

  /// (update, gradient norm) of each line of training.
  std::vector<std::pair<int64_t, double>> norms(const std::string& run) const {
    std::vector<std::pair<int64_t, double>> found;
    std::istringstream text(read_file(folder_ / run / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);)
      if (const Json values = parse_json(line, "a line"); values["split"] == "train")
        found.emplace_back(values["update"], values["gradient_norm"]);
    return found;
  }

  std::string newest(const std::string& run) const { return read_file(checkpoints_of(folder_ / run).front()); }

  TestFolder folder_;
};

TEST_F(Trainer, WritesARunsFolder) {
  EXPECT_EQ(train("run", config()), Outcome::kFinished);
  EXPECT_EQ(checkpoints("run"), (std::vector<int64_t>{5, 10, 12}));
  std::vector<std::string> lines;
  std::istringstream text(read_file(folder_ / "run" / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(line.substr(0, line.find(',', line.find(',') + 1)));
  const auto train = [](int n) { return "{\"update\":" + std::to_string(n) + ",\"split\":\"train\""; };
  const auto valid = [](int n) { return "{\"update\":" + std::to_string(n) + ",\"split\":\"valid\""; };
  EXPECT_EQ(lines, (std::vector<std::string>{train(2), train(4), valid(4), train(6), train(8), valid(8), train(10),
                                             train(12), valid(12)}));
  Config written;
  read_config(written.sections(), folder_ / "run" / "config.toml");
  EXPECT_EQ(written.to_toml(), config().to_toml());
}

TEST_F(Trainer, ARunThatWasLengthenedEqualsOneInOnePiece) {
  train("whole", config(12));
  EXPECT_EQ(train("parts", config(7)), Outcome::kFinished);
  EXPECT_EQ(norms("parts").back().first, 7);  // the last update has a line, though log_every is 2
  EXPECT_EQ(train("parts", config(12), /*resume=*/true), Outcome::kFinished);
  EXPECT_EQ(norms("parts"), norms("whole"));
  EXPECT_EQ(checkpoints("parts").back(), 12);
  // The run of 7 updates validated at its end, which its checkpoints remember. Weights, moments and memory are the
  // same.
  const Checkpoint whole = Checkpoint::open(folder_ / "whole"), parts = Checkpoint::open(folder_ / "parts");
  ASSERT_EQ(whole.file().tensors().size(), parts.file().tensors().size());
  for (const auto& [name, entry] : whole.file().tensors())
    EXPECT_EQ(entry.bytes, parts.file().tensor(name).bytes) << name;
}

TEST_F(Trainer, CtrlCLeavesACheckpointThatGoesOnToTheBit) {
  train("whole", config());
  {
    const Interruptible scope;
    std::raise(SIGINT);
    EXPECT_EQ(train("run", config()), Outcome::kInterrupted);
    EXPECT_EQ(checkpoints("run"), (std::vector<int64_t>{0, 1}));
  }
  EXPECT_EQ(train("run", config(), /*resume=*/true), Outcome::kFinished);
  EXPECT_EQ(newest("run"), newest("whole"));
}

TEST_F(Trainer, AValidationThatWasInterruptedLeavesTheLastLineOfTraining) {
  {
    const Interruptible scope;
    std::raise(SIGINT);
    EXPECT_EQ(train("run", config(1)), Outcome::kInterrupted);  // after the last update, before its validation
  }
  const auto before = norms("run");
  ASSERT_EQ(before.size(), 1);
  EXPECT_EQ(train("run", config(1), /*resume=*/true), Outcome::kFinished);
  EXPECT_EQ(norms("run"), before);
}

TEST_F(Trainer, ARunIsNotBegunTwice) {
  train("run", config(2));
  const std::string before = newest("run");
  EXPECT_NE(error_of([&] { train("run", config(2)); }).find("--resume continues it"), std::string::npos);
  EXPECT_EQ(train("run", config(2), /*resume=*/true), Outcome::kFinished);  // it is complete
  EXPECT_EQ(newest("run"), before);
  Config other = config(2);
  other.model.width = 16;
  EXPECT_NE(error_of([&] { train("run", other, /*resume=*/true); }).find("model.width"), std::string::npos);
  EXPECT_EQ(train("new", config(2), /*resume=*/true), Outcome::kFinished);  // there is none yet: it begins
}

TEST_F(Trainer, ALossThatIsNotFiniteEndsTheRunAndSaysWhatToDo) {
  begin_run(config(), folder_ / "run", [](Transformer& model) {
    for (auto& [name, tensor] : model.parameters())
      tensor->detach().fill_(1e30);  // finite: others are refused when the run is opened
  });
  const std::string error = error_of([&] { train("run", config(), /*resume=*/true); });
  EXPECT_NE(error.find("update 1: the loss is nan"), std::string::npos) << error;
  EXPECT_NE(error.find("no checkpoint of a trained model from before it"), std::string::npos) << error;
  EXPECT_EQ(checkpoints("run"), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace lapse
