#include "lapse/rl/portal.h"

#include <fmt/format.h>

#include <array>

#include "lapse/rl/batch.h"
#include "lapse/rl/grid.h"

namespace lapse {
namespace {

enum Word : int32_t { kAgent, kBlock, kDoor, kFirstColour };  // then the colours, then the rooms

constexpr int32_t kSide = 5, kMiddle = 2, kMostRooms = 200;
const std::vector<std::string> kColours = {"red", "blue", "green", "yellow", "purple", "orange", "white", "cyan"};

/// 0: the left door, 1: the right one, -1: none.
int32_t door_at(int32_t row, int32_t column) { return row == 0 && (column == 1 || column == 3) ? column / 2 : -1; }

struct PortalWorld {
  struct Rules {
    int64_t rooms = 50, most_steps = 1000, mistakes = 2, colours = 6;
  };
  struct Room {
    std::array<uint8_t, 2> colours;  // of the left and the right door
    uint8_t good;                    // door
    uint8_t mistakes;
  };

  int32_t room, highest, row, column, steps;  // rooms are counted from 1
  std::array<Room, kMostRooms> rooms;

  void begin(const Rules& rules, Random& random) {
    for (int64_t k = 0; k < rules.rooms - 1; ++k) {
      const uint64_t left = random.below(rules.colours);
      const uint64_t right = (left + 1 + random.below(rules.colours - 1)) % rules.colours;
      const auto good = static_cast<uint8_t>(random.below(2));
      rooms[k] = {{static_cast<uint8_t>(left), static_cast<uint8_t>(right)}, good, 0};
    }
    highest = 1;
    steps = 0;
    arrive(1);
  }

  void arrive(int32_t in) {
    room = in;
    row = column = kMiddle;
  }

  StepResult step(const Rules& rules, int32_t action) {
    StepResult result{0, ++steps == rules.most_steps, 0};
    const GridMove move = grid_move(action);
    row = std::clamp(row + move.down, 0, kSide - 1);
    column = std::clamp(column + move.right, 0, kSide - 1);
    if (const int32_t door = door_at(row, column); door >= 0) enter(rules, door, result);
    result.score = result.end ? static_cast<float>(highest) : 0;
    return result;
  }

  void enter(const Rules& rules, int32_t door, StepResult& result) {
    Room& here = rooms[room - 1];
    if (door == here.good) {
      result.reward = static_cast<float>(room) / 10;
      arrive(room + 1);
      highest = std::max(highest, room);
      result.end |= room == rules.rooms;
    } else {
      arrive(1);
      result.end |= ++here.mistakes == rules.mistakes;
    }
  }

  void observe(const Rules& rules, WordWriter& writer) const {
    see_window(row, column, [&](int32_t cell, int32_t r, int32_t c) {
      if (r < 0 || r >= kSide || c < 0 || c >= kSide) {
        writer.write(cell, kBlock);
      } else if (r == row && c == column) {
        writer.write(cell, kAgent);
        writer.write(cell, static_cast<int32_t>(kFirstColour + rules.colours + room - 1));
      } else if (const int32_t door = door_at(r, c); door >= 0) {
        writer.write(cell, kDoor);
        writer.write(cell, kFirstColour + rooms[room - 1].colours[door]);
      }
    });
  }

  template <class V>
  void visit(const Rules& rules, V&& value) {
    value("the room", room, 1, rules.rooms - 1);
    value("the highest room", highest, room, rules.rooms - 1);
    value("the number of steps", steps, 0, rules.most_steps - 1);
    value("the column", column, 0, kSide - 1);
    value("the row", row, door_at(0, column) >= 0 ? 1 : 0, kSide - 1);  // nobody stands in a door
    for (int64_t k = 0; k < rules.rooms - 1; ++k) {
      Room& in = rooms[k];
      auto further = static_cast<uint8_t>((in.colours[1] + rules.colours - in.colours[0]) % rules.colours);
      value("the left door's colour", in.colours[0], 0, rules.colours - 1);
      value("the distance of the right door's colour", further, 1, rules.colours - 1);
      in.colours[1] = static_cast<uint8_t>((in.colours[0] + further) % rules.colours);
      value("the good door", in.good, 0, 1);
      value("the number of mistakes in a room", in.mistakes, 0, k < highest ? rules.mistakes - 1 : 0);
    }
  }

  /// As the agent can know it: not which door is good.
  std::string draw(const Rules&) const {
    std::string map = fmt::format("{:<8}\n", fmt::format("room {}", room));
    for (int32_t r = -1; r <= kSide; ++r) {
      for (int32_t c = -1; c <= kSide; ++c) {
        const int32_t door = door_at(r, c);
        const bool outside = r < 0 || r == kSide || c < 0 || c == kSide;
        const char colour = door < 0 ? '.' : kColours[rooms[room - 1].colours[door]][0];
        map += outside ? '#' : r == row && c == column ? '@' : colour;
      }
      map += " \n";
    }
    return map;
  }
  static std::string legend(const Rules& rules) {
    std::string text = "@ agent  # block  doors:";
    for (int64_t n = 0; n < rules.colours; ++n) text += fmt::format(" {} {}", kColours[n][0], kColours[n]);
    return text;
  }
};

class Portal : public EnvironmentOptions {
 public:
  std::string name() const override { return "portal"; }
  Fields fields() override {
    return {
        field("rooms", rules_.rooms, "in a row; reaching the last one ends the episode; the paper's: 50")
            .in(2, kMostRooms),
        field("most_steps", rules_.most_steps, "of an episode; the paper's: 1000").in(1, 1e9).unit("steps"),
        field("mistakes", rules_.mistakes, "in one room end the episode; the paper's: 2").in(1, 255),
        field("colours", rules_.colours, "that doors may have").in(2, static_cast<double>(kColours.size())),
    };
  }
  EnvironmentShape shape() const override {
    EnvironmentShape shape{.cells = kWindowCells,
                           .words = {"agent", "block", "door"},
                           .actions = grid_actions(),
                           .most_words = 9,  // in a top corner: 5 blocks, agent and room, a door and its colour
                           .score = "rooms",
                           .least_score = 1,
                           .best_score = static_cast<double>(rules_.rooms),
                           .most_steps = rules_.most_steps};
    for (int64_t n = 0; n < rules_.colours; ++n) shape.words.push_back(kColours[n]);
    for (int64_t k = 1; k < rules_.rooms; ++k) shape.words.push_back(fmt::format("room {}", k));
    return shape;
  }
  std::unique_ptr<Environments> make(int64_t count, uint64_t seed) const override {
    return std::make_unique<WorldBatch<PortalWorld>>(*this, rules_, count, seed);
  }

 private:
  PortalWorld::Rules rules_;
};

}  // namespace

std::unique_ptr<EnvironmentOptions> portal_options() { return std::make_unique<Portal>(); }

}  // namespace lapse
