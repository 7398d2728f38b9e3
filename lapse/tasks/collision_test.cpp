// The streams of the collision task, read token by token by its rules.
#include "lapse/tasks/collision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lapse/core/error.h"
#include "lapse/tasks/collision_world.h"
#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

struct Stream {
  std::vector<int64_t> input, target;
};

Stream read(const TaskOptions& task, const std::string& part = "test") {
  Stream all;
  const auto source = task.open();
  const auto blocks = source->evaluation(part, 1, 1000, false);
  for (TokenBlock block; blocks->next(block);) {
    all.input.insert(all.input.end(), block.input.begin(), block.input.end());
    all.target.insert(all.target.end(), block.target.begin(), block.target.end());
  }
  return all;
}

int64_t quadrant(int64_t row, int64_t column, int64_t grid = 16) {
  return 2 * (2 * row >= grid) + (2 * column >= grid);
}

/// What tokens begin at, and how often the colours of the last collision are asked for.
struct Rules {
  int64_t grid, colours, column, colour, ask;
  double asked_for_newest;
};

class CollisionAnswers : public testing::TestWithParam<Rules> {};

TEST_P(CollisionAnswers, AreTheLastQuadrants) {
  const Rules& rules = GetParam();
  const Stream stream = read(*make_task(
      "collision",
      {{"test_steps", "60000"}, {"grid", std::to_string(rules.grid)}, {"colours", std::to_string(rules.colours)}}));
  std::map<std::pair<int64_t, int64_t>, int64_t> last;
  std::pair<int64_t, int64_t> newest{-1, -1};
  int64_t steps = 0, scored = 0, asked_for_newest = 0, after_first = 0, changes = 0, collisions = 0, colour = -1;
  for (size_t at = 0; at + 8 <= stream.input.size(); at += 8, ++steps) {
    const int64_t* token = &stream.input[at];
    const int64_t row[] = {token[0], token[3]}, column[] = {token[1] - rules.column, token[4] - rules.column};
    const std::pair colours{token[2] - rules.colour, token[5] - rules.colour},
        asked{token[6] - rules.ask, token[7] - rules.ask};
    for (int p = 0; p < 2; ++p) {
      ASSERT_TRUE(row[p] >= 0 && row[p] < rules.grid && column[p] >= 0 && column[p] < rules.grid);
    }
    for (const int64_t c : {colours.first, colours.second, asked.first, asked.second})
      ASSERT_TRUE(c >= 0 && c < rules.colours);
    changes += colour >= 0 && colour != colours.first;
    colour = colours.first;
    if (row[0] == row[1] && column[0] == column[1]) {
      newest = colours, last[colours] = 1 + quadrant(row[0], column[0], rules.grid), ++collisions;
    }
    if (newest.first >= 0) ++after_first, asked_for_newest += asked == newest;
    for (size_t i = 0; i < 7; ++i) ASSERT_EQ(stream.target[at + i], kUnscored);
    ASSERT_EQ(stream.target[at + 7], last.count(asked) ? last[asked] : kUnscored) << steps;
    scored += last.count(asked);
  }
  EXPECT_EQ(steps, 60000);
  EXPECT_GT(collisions, 100);
  EXPECT_EQ(std::ssize(last), rules.colours * rules.colours);
  // 4 standard deviations; a new colour is another one with probability 1 - 1 / colours
  const double other = 0.05 * (1 - 1 / static_cast<double>(rules.colours));
  EXPECT_NEAR(static_cast<double>(asked_for_newest) / static_cast<double>(after_first), rules.asked_for_newest, 0.009);
  EXPECT_NEAR(static_cast<double>(changes) / static_cast<double>(steps), other, 0.0035);
  EXPECT_GT(scored, steps / 2);
}

// 0.4 + 0.6 / colours^2
INSTANTIATE_TEST_SUITE_P(ThePapers, CollisionAnswers, testing::Values(Rules{16, 5, 16, 32, 37, 0.424}));
INSTANTIATE_TEST_SUITE_P(Smaller, CollisionAnswers,
                         testing::Values(Rules{4, 2, 4, 8, 10, 0.55}, Rules{6, 3, 6, 12, 15, 0.4667}));

TEST(Collision, RefusesAGridWithoutQuadrants) { EXPECT_THROW(make_task("collision", {{"grid", "5"}})->check(), Error); }

TEST(Collision, TheEasyVersionAsksForTheLastAndTheLastThree) {
  const Stream stream = read(*make_task("collision", {{"easy", "true"}, {"test_steps", "40000"}}));
  std::vector<int64_t> past;
  int64_t steps = 0, first_kind = 0;
  for (size_t at = 0; at + 5 <= stream.input.size(); at += 5, ++steps) {
    const int64_t* token = &stream.input[at];
    if (token[0] == token[2] && token[1] == token[3]) past.push_back(quadrant(token[0], token[1] - 16));
    ASSERT_TRUE(token[4] == 32 || token[4] == 33);
    const size_t n = past.size();
    int64_t label = kUnscored;
    if (token[4] == 32 && n >= 1) label = 1 + past[n - 1];
    if (token[4] == 33 && n >= 3) label = 5 + 16 * past[n - 1] + 4 * past[n - 2] + past[n - 3];
    for (size_t i = 0; i < 4; ++i) ASSERT_EQ(stream.target[at + i], kUnscored);
    ASSERT_EQ(stream.target[at + 4], label) << steps;
    first_kind += token[4] == 32;
  }
  EXPECT_NEAR(static_cast<double>(first_kind) / static_cast<double>(steps), 0.5, 0.01);
}

TEST(CollisionWorld, ParticlesMoveByTheirVelocityAndStayInside) {
  CollisionWorld world({}, Random(3, "world"));
  auto before = world.particles();
  int64_t kept = 0, steps = 20000;
  double squares = 0;
  std::array<int, 16> rows{};
  for (int64_t n = 0; n < steps; ++n) {
    world.step();
    for (size_t p = 0; p < 2; ++p) {
      const auto& now = world.particles()[p];
      for (size_t axis = 0; axis < 2; ++axis) {
        EXPECT_TRUE(now.position[axis] > 0 && now.position[axis] < 15);
        EXPECT_DOUBLE_EQ(now.position[axis], before[p].position[axis] + now.velocity[axis]);
      }
      kept += now.velocity == before[p].velocity;
      if (now.velocity != before[p].velocity) squares += now.velocity[0] * now.velocity[0];
      ++rows[now.cell()[0]];
    }
    before = world.particles();
  }
  EXPECT_GT(kept, steps) << "a velocity is drawn anew only where the particle would leave";
  for (const int count : rows) EXPECT_GT(count, 0);
  // Drawn with a deviation of 0.5, and kept where they do not lead outside, which at an edge rather small ones do not.
  const double deviation = std::sqrt(squares / static_cast<double>(2 * steps - kept));
  EXPECT_GT(deviation, 0.4);
  EXPECT_LT(deviation, 0.6);
}

TEST(Collision, TheTrainingSimulationIsTheSameForEverySeed) {
  const auto task = make_task("collision", {{"train_steps", "300"}});
  const auto other = make_task("collision", {{"train_steps", "300"}, {"test_seed", "2"}});
  const auto a = task->open(), b = other->open();
  EXPECT_EQ(a->checksum("train"), b->checksum("train"));
  EXPECT_NE(a->checksum("train"), 0u);
  EXPECT_EQ(a->vocabulary().size(), 42);
  EXPECT_EQ(a->vocabulary().outputs(), 5);
}

}  // namespace
}  // namespace lapse
