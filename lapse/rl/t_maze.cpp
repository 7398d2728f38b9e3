#include "lapse/rl/t_maze.h"

#include <fmt/format.h>

#include <cmath>

#include "lapse/rl/batch.h"
#include "lapse/rl/success.h"

namespace lapse {
namespace {

enum Word : int32_t { kAgent, kGoalUp, kGoalDown, kJunction };
enum Action : int32_t { kRight, kUp, kLeft, kDown };

struct TMazeWorld {
  struct Rules {
    int64_t length = 100;
    int64_t shortest = 0;  // 0: all have the length
    double penalty = 1;

    int64_t least() const { return shortest == 0 ? length : shortest; }
  };

  int32_t length, x, steps;
  int32_t up;  // 1: the goal is the upper arm

  /// As many of 1 to 10 as of 10 to 100: log-uniform, for u uniform in [0, 1).
  static int32_t drawn_length(const Rules& rules, double u) {
    const auto low = static_cast<double>(rules.least()), past = static_cast<double>(rules.length + 1);
    return static_cast<int32_t>(std::min<double>(low * std::pow(past / low, u), rules.length));
  }

  void begin(const Rules& rules, Random& random) {
    length = static_cast<int32_t>(rules.length);
    if (rules.least() < rules.length) length = drawn_length(rules, random.uniform());
    up = static_cast<int32_t>(random.below(2));
    x = steps = 0;
  }

  StepResult step(const Rules& rules, int32_t action) {
    if (steps++ == length) {
      const float success = x == length && action == (up ? kUp : kDown) ? 1 : 0;
      return {success, true, success};
    }
    x = std::clamp(x + (action == kRight) - (action == kLeft), 0, length);
    return {x < steps ? static_cast<float>(-rules.penalty / length) : 0, false, 0};
  }

  void observe(const Rules&, WordWriter& writer) const {
    writer.write(0, kAgent);
    if (steps == 0) writer.write(0, up ? kGoalUp : kGoalDown);
    if (x == length) writer.write(0, kJunction);
  }

  template <class V>
  void visit(const Rules& rules, V&& value) {
    value("the length", length, rules.least(), rules.length);
    value("the goal", up, 0, 1);
    value("the number of steps", steps, 0, length);
    value("x", x, 0, steps);
  }

  /// As the agent sees it: the goal at the start only.
  std::string draw(const Rules&) const {
    std::string above(length + 3, '#'), corridor(length + 3, '.'), below = above;
    corridor.front() = corridor.back() = '#';
    corridor[x + 1] = '@';
    above[length + 1] = steps == 0 && up ? 'G' : '.';
    below[length + 1] = steps == 0 && !up ? 'G' : '.';
    return above + '\n' + corridor + '\n' + below + '\n';
  }
  static std::string legend(const Rules&) { return "@ agent  # wall  G goal, seen before the first step"; }
};

class TMaze : public EnvironmentOptions, public SuccessOptions {
 public:
  std::string name() const override { return "t_maze"; }
  Fields fields() override {
    return {
        field("length", rules_.length, "of the corridor; an episode has one step more; the paper's: 50 to 1500")
            .in(1, 100'000)
            .unit("cells"),
        field("shortest", rules_.shortest,
              "lengths are log-uniform in shortest ... length: an agent finds the arms in short corridors, and then "
              "masters longer ones; 0: all have the length")
            .in(0, 100'000)
            .unit("cells"),
        field("penalty", rules_.penalty,
              "the reward is -penalty / length after a step that leaves the agent behind one that always goes right; "
              "the paper's: 1")
            .in(0, 1000),
    };
  }
  void check() const override {
    if (rules_.shortest > rules_.length)
      fail(fmt::format("t_maze.shortest = {} is more than t_maze.length = {}; set it to at most that", rules_.shortest,
                       rules_.length));
  }
  EnvironmentShape shape() const override {
    return {.cells = 1,
            .words = {"agent", "goal up", "goal down", "junction"},
            .actions = {"right", "up", "left", "down"},
            .most_words = 2,
            .score = "success",
            .best_score = 1,
            .most_steps = rules_.length + 1};
  }
  bool returns_score() const override { return rules_.penalty == 0; }
  std::unique_ptr<Environments> make(int64_t count, uint64_t seed) const override {
    return std::make_unique<WorldBatch<TMazeWorld>>(*this, rules_, count, seed);
  }

 private:
  TMazeWorld::Rules rules_;
};

}  // namespace

std::unique_ptr<EnvironmentOptions> t_maze_options() { return std::make_unique<TMaze>(); }

}  // namespace lapse
