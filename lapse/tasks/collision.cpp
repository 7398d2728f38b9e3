// Each step of the world is eight tokens: row, column and colour of each particle, then each asked colour; the label,
// the quadrant of the last collision of those colours, stands at the eighth. Easy version: five tokens, row and column
// of each particle, then the question. One fixed simulation for each part, cut into streams; memory is carried.
#include "lapse/tasks/collision.h"

#include <fmt/format.h>

#include <map>

#include "lapse/core/error.h"
#include "lapse/tasks/collision_world.h"

namespace lapse {
namespace {

struct Recording {
  Tokens tokens;
  Labels labels;
};

Recording record(const CollisionRules& rules, int64_t steps, int64_t vocabulary, int64_t outputs, Random random) {
  CollisionWorld world(rules, std::move(random));
  Recording made{Tokens(vocabulary), {Tokens(outputs), rules.tokens_of_step()}};
  made.tokens.reserve_bytes(steps * made.labels.period);
  std::vector<int32_t> step;
  for (int64_t i = 0; i < steps; ++i) {
    world.step();
    step.clear();
    for (const auto& particle : world.particles()) {
      const auto cell = particle.cell();
      step.push_back(static_cast<int32_t>(cell[0]));
      step.push_back(rules.first_column() + static_cast<int32_t>(cell[1]));
      if (!rules.easy) step.push_back(rules.first_colour() + static_cast<int32_t>(particle.colour));
    }
    const auto question = world.ask();
    step.insert(step.end(), question.tokens.begin(), question.tokens.end());
    made.tokens.append(step);
    made.labels.values.append({question.label});
  }
  return made;
}

Vocabulary vocabulary_of(const CollisionRules& rules) {
  std::vector<std::string> tokens;
  const auto add = [&](const char* name, int64_t count) {
    for (int64_t i = 0; i < count; ++i) tokens.push_back(name + std::to_string(i));
  };
  add("row", rules.grid);
  add("column", rules.grid);
  if (rules.easy) {
    add("question", 2);
  } else {
    add("colour", rules.colours);
    add("ask", rules.colours);
  }
  return Vocabulary::of_task(std::move(tokens), /*has_bos=*/false, rules.easy ? 69 : 5);
}

struct Steps {
  int64_t train, valid, test;
};

/// What `make` makes of a simulation; where that is too short, the Error names the option that says how long it is.
template <class Make>
auto sized(const std::string& option, int64_t steps, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    fail(fmt::format("{} = {}: {}", option, steps, error.what()));
  }
}

class CollisionSource : public TaskSource {
 public:
  CollisionSource(const std::string& name, int64_t test_seed, const CollisionRules& rules, const Steps& steps)
      : TaskSource(name, vocabulary_of(rules), test_seed), rules_(rules), steps_(steps) {}

  std::string describe() const override {
    return fmt::format("task {}: a simulation of {} steps to train on, another of {} to validate", name(), steps_.train,
                       steps_.valid);
  }
  uint32_t checksum(const std::string& part) const override {
    return part == "train" ? recording(part).tokens.checksum() : 0;
  }
  bool has(const std::string& part) const override { return part == "train" || TaskSource::has(part); }
  std::unique_ptr<TrainingBlocks> training(int64_t batch, int64_t block, Random random) override {
    const Recording& made = recording("train");
    return sized(name() + ".train_steps", steps_.train, [&] {
      return std::make_unique<TrainingStreams>(made.tokens, batch, block, std::move(random), &made.labels);
    });
  }
  std::unique_ptr<EvaluationBlocks> evaluation(const std::string& part, int64_t batch, int64_t block,
                                               bool drop_partial) override {
    const Recording& made = recording(part);
    return sized(fmt::format("{}.{}_steps", name(), part), part == "valid" ? steps_.valid : steps_.test, [&] {
      return std::make_unique<EvaluationStreams>(made.tokens, batch, block, drop_partial, &made.labels);
    });
  }
  int64_t streams(const std::string& part, int64_t block, int64_t most) const override {
    return std::clamp<int64_t>(recording(part).tokens.size() / (2 * block), 1, most);
  }

 private:
  /// Made when it is first asked for. That of training is the same for every seed.
  const Recording& recording(const std::string& part) const {
    const auto found = recordings_.find(part);
    if (found != recordings_.end()) return found->second;
    const bool train = part == "train";
    const int64_t steps = train ? steps_.train : part == "valid" ? steps_.valid : steps_.test;
    return recordings_[part] = record(rules_, steps, vocabulary().size(), vocabulary().outputs(),
                                      train ? Random(1, name() + ".train") : random_of(part));
  }

  CollisionRules rules_;
  Steps steps_;
  mutable std::map<std::string, Recording> recordings_;
};

class Collision : public TaskOptions {
 public:
  std::string name() const override { return "collision"; }
  Fields fields() override {
    return {
        field("easy", rules_.easy,
              "without colours: the quadrant of the last collision, or those of the last three (five tokens a step "
              "instead of eight)"),
        field("grid", rules_.grid, "cells on a side; a smaller one has more collisions; the paper's: 16").in(2, 1000),
        field("colours", rules_.colours, "of a particle; the paper's: 5").in(1, 100).used_if([this] {
          return !rules_.easy;
        }),
        field("train_steps", steps_.train, "length of the simulation to train on; the paper's: 50,000,000")
            .in(10, 1e9)
            .unit("steps"),
        field("valid_steps", steps_.valid, "length of the one to validate; at the paper's size 5,000,000")
            .in(10, 1e9)
            .unit("steps"),
        field("test_steps", steps_.test, "length of the one to test; at the paper's size 5,000,000")
            .in(10, 1e9)
            .unit("steps"),
    };
  }
  void check() const override {
    if (rules_.grid % 2 != 0)
      fail(fmt::format("collision.grid = {} does not divide into quadrants; set an even number", rules_.grid));
  }
  int64_t window() const override { return 0; }
  std::unique_ptr<Source> open() const override {
    return std::make_unique<CollisionSource>(name(), test_seed_, rules_, steps_);
  }

 private:
  CollisionRules rules_;
  Steps steps_{1'000'000, 20'000, 100'000};
};

}  // namespace

std::unique_ptr<TaskOptions> collision_options() { return std::make_unique<Collision>(); }

}  // namespace lapse
