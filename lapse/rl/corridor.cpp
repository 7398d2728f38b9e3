#include "lapse/rl/corridor.h"

#include <fmt/format.h>

#include "lapse/rl/batch.h"
#include "lapse/rl/grid.h"
#include "lapse/rl/success.h"

namespace lapse {
namespace {

enum Word : int32_t { kAgent, kBlock, kObject, kDoor, kRed, kBlue };

/// Of an episode in a corridor of this length.
template <class Int>
Int most_steps(Int length) {
  return 4 * length + 50;
}

struct CorridorWorld {
  struct Rules {
    int64_t shortest = 3, longest = 200;
  };

  int32_t length, column, steps;
  int32_t object, upper_door;  // colours: 0 is red, 1 is blue

  void begin(const Rules& rules, Random& random) {
    length = static_cast<int32_t>(rules.shortest + random.below(rules.longest - rules.shortest + 1));
    object = static_cast<int32_t>(random.below(2));
    upper_door = static_cast<int32_t>(random.below(2));
    column = steps = 0;
  }

  int32_t door(int32_t row) const { return row < 0 ? upper_door : 1 - upper_door; }

  StepResult step(const Rules&, int32_t action) {
    const GridMove move = grid_move(action);
    if (move.down != 0 && column == length - 1) {
      const float success = door(move.down) == object ? 1 : 0;
      return {success, true, success};
    }
    column = std::clamp(column + move.right, 0, length - 1);
    return {0, ++steps == most_steps(length), 0};
  }

  void observe(const Rules&, WordWriter& writer) const {
    see_window(0, column, [&](int32_t cell, int32_t row, int32_t c) {
      const auto thing = [&](Word kind, int32_t colour) {
        writer.write(cell, kind);
        writer.write(cell, kRed + colour);
      };
      if (c < 0 || c >= length)
        writer.write(cell, kBlock);
      else if (row == 0 && c == column)
        writer.write(cell, kAgent);
      else if (row != 0 && c == length - 1)
        thing(kDoor, door(row));
      else if (row < 0 && c == 0)
        thing(kObject, object);
      else if (row != 0)
        writer.write(cell, kBlock);
    });
  }

  template <class V>
  void visit(const Rules& rules, V&& value) {
    value("the length", length, rules.shortest, rules.longest);
    value("the object's colour", object, 0, 1);
    value("the upper door's colour", upper_door, 0, 1);
    value("the number of steps", steps, 0, most_steps(length) - 1);
    value("the column", column, 0, std::min(length - 1, steps));
  }

  std::string draw(const Rules&) const {
    std::string above(length + 2, '#'), corridor(length + 2, '.'), below = above;
    corridor.front() = corridor.back() = '#';
    above[1] = "rb"[object];
    above[length] = "RB"[door(-1)];
    below[length] = "RB"[door(1)];
    corridor[column + 1] = '@';
    return above + '\n' + corridor + '\n' + below + '\n';
  }
  static std::string legend(const Rules&) { return "@ agent  # block  r b red or blue object  R B red or blue door"; }
};

class Corridor : public EnvironmentOptions, public SuccessOptions {
 public:
  std::string name() const override { return "corridor"; }
  Fields fields() override {
    return {
        field("shortest", rules_.shortest, "length of a corridor; the paper's: 3").in(3, 100'000).unit("cells"),
        field("longest", rules_.longest, "lengths are uniform in shortest ... longest; the paper's: 200")
            .in(3, 100'000)
            .unit("cells"),
    };
  }
  void check() const override {
    if (rules_.shortest > rules_.longest)
      fail(fmt::format("corridor.shortest = {} is more than corridor.longest = {}; set it to at most that",
                       rules_.shortest, rules_.longest));
  }
  EnvironmentShape shape() const override {
    return {.cells = kWindowCells,
            .words = {"agent", "block", "object", "door", "red", "blue"},
            .actions = grid_actions(),
            .most_words = 10,  // at the right end: agent, 5 blocks, 2 doors with their colours
            .score = "success",
            .best_score = 1,
            .most_steps = most_steps(rules_.longest)};
  }
  bool returns_score() const override { return true; }
  std::unique_ptr<Environments> make(int64_t count, uint64_t seed) const override {
    return std::make_unique<WorldBatch<CorridorWorld>>(*this, rules_, count, seed);
  }

 private:
  CorridorWorld::Rules rules_;
};

}  // namespace

std::unique_ptr<EnvironmentOptions> corridor_options() { return std::make_unique<Corridor>(); }

}  // namespace lapse
