// Episodes and maps written by hand, from states set by hand: random stream's counter, then the world's numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/testing.h"
#include "lapse/rl/testing.h"

namespace lapse {
namespace {

const std::set<std::string> kNothing, kBlock = {"block"}, kAgent = {"agent"};

std::unique_ptr<Environments> started(const EnvironmentCase& wanted, const std::vector<int64_t>& state) {
  auto environments = options_of(wanted)->make(1, 1);
  environments->set_state(0, state);
  return environments;
}

/// A corridor of three cells, the object blue, the upper door red: after `steps` steps, in this column.
std::unique_ptr<Environments> corridor(int64_t steps, int64_t column) {
  return started({"corridor", {}}, {0, 3, 1, 0, steps, column});
}

TEST(CorridorRules, TheObjectIsSeenAtTheStartAndTheDoorsAtTheEnd) {
  const auto world = corridor(0, 0);
  const std::set<std::string> object = {"object", "blue"}, red = {"door", "red"}, blue = {"door", "blue"};
  EXPECT_EQ(world->draw(0), "#b#R#\n#@..#\n###B#\n");
  EXPECT_EQ(sight_of(*world, 0), (Sight{kBlock, object, kBlock, kBlock, kAgent, kNothing, kBlock, kBlock, kBlock}));
  act(*world, 0, "right");
  EXPECT_EQ(sight_of(*world, 0), (Sight{object, kBlock, red, kNothing, kAgent, kNothing, kBlock, kBlock, blue}));
  act(*world, 0, "right");
  EXPECT_EQ(sight_of(*world, 0), (Sight{kBlock, red, kBlock, kNothing, kAgent, kBlock, kBlock, blue, kBlock}));
}

TEST(CorridorRules, BlocksStop) {
  const auto world = corridor(0, 0);
  for (const char* action : {"up", "down", "left"}) {
    const StepResult result = act(*world, 0, action);
    EXPECT_TRUE(result.reward == 0 && !result.end);
    EXPECT_EQ(world->state(0).back(), 0) << action;
  }
  const auto end = corridor(9, 2);
  EXPECT_FALSE(act(*end, 0, "right").end);
  EXPECT_EQ(end->state(0).back(), 2);
}

TEST(CorridorRules, TheDoorOfTheObjectsColourPays) {
  const StepResult right = act(*corridor(2, 2), 0, "down"), wrong = act(*corridor(2, 2), 0, "up");
  EXPECT_TRUE(right.end && right.reward == 1 && right.score == 1);
  EXPECT_TRUE(wrong.end && wrong.reward == 0 && wrong.score == 0);
}

TEST(CorridorRules, TheLastStepMayStillPay) {
  EXPECT_FALSE(act(*corridor(60, 2), 0, "left").end);
  const StepResult late = act(*corridor(61, 2), 0, "left"), just = act(*corridor(61, 2), 0, "down");
  EXPECT_TRUE(late.end && late.reward == 0 && late.score == 0);
  EXPECT_TRUE(just.end && just.reward == 1 && just.score == 1);
}

// Room, highest room, steps, column, row; for rooms 1 and 2: left colour, distance of the right one, good door,
// mistakes. Room 1: red, blue, the right one is good. Room 2: yellow, red, the left one is good.
std::unique_ptr<Environments> portal(std::vector<int64_t> state) {
  return started({"portal", {{"rooms", "3"}, {"colours", "4"}, {"most_steps", "20"}}}, state);
}

TEST(PortalRules, DoorsAndTheRoomsNumberAreSeen) {
  const auto world = portal({0, 2, 2, 7, 2, 2, 0, 1, 1, 1, 3, 1, 0, 0});
  EXPECT_EQ(world->draw(0), "room 2  \n####### \n#.y.r.# \n#.....# \n#..@..# \n#.....# \n#.....# \n####### \n");
  const std::set<std::string> agent = {"agent", "room 2"};
  EXPECT_EQ(sight_of(*world, 0),
            Sight({kNothing, kNothing, kNothing, kNothing, agent, kNothing, kNothing, kNothing, kNothing}));
  act(*world, 0, "up");
  EXPECT_EQ(
      sight_of(*world, 0),
      Sight({{"door", "yellow"}, kNothing, {"door", "red"}, kNothing, agent, kNothing, kNothing, kNothing, kNothing}));
}

TEST(PortalRules, TheGoodDoorIsSeenByNobody) {
  const auto left = portal({0, 1, 1, 0, 2, 1, 0, 1, 0, 0, 3, 1, 0, 0});
  const auto right = portal({0, 1, 1, 0, 2, 1, 0, 1, 1, 0, 3, 1, 1, 0});
  EXPECT_EQ(left->draw(0), right->draw(0));
  EXPECT_EQ(sight_of(*left, 0), sight_of(*right, 0));
}

TEST(PortalRules, TheGoodDoorPaysAndLeadsOn) {
  const auto world = portal({0, 1, 1, 0, 3, 1, 0, 1, 1, 0, 3, 1, 0, 0});
  const StepResult result = act(*world, 0, "up");
  EXPECT_TRUE(!result.end && result.reward == 0.1f);
  EXPECT_EQ(world->state(0), (std::vector<int64_t>{0, 2, 2, 1, 2, 2, 0, 1, 1, 0, 3, 1, 0, 0}));
  const StepResult last = act(*portal({0, 2, 2, 0, 2, 0, 0, 1, 1, 0, 3, 1, 0, 0}), 0, "left");  // from the side
  EXPECT_TRUE(last.end && last.reward == 0.2f && last.score == 3);
}

TEST(PortalRules, TheWrongDoorLeadsBackAndTheSecondMistakeEnds) {
  const auto world = portal({0, 2, 2, 5, 3, 1, 0, 1, 1, 1, 3, 1, 0, 0});
  const StepResult first = act(*world, 0, "up");
  EXPECT_TRUE(!first.end && first.reward == 0);
  EXPECT_EQ(world->state(0), (std::vector<int64_t>{0, 1, 2, 6, 2, 2, 0, 1, 1, 1, 3, 1, 0, 1}));
  const StepResult second = act(*portal({0, 1, 2, 5, 1, 1, 0, 1, 1, 1, 3, 1, 0, 1}), 0, "up");
  EXPECT_TRUE(second.end && second.reward == 0 && second.score == 2);
}

TEST(PortalRules, MostStepsEnd) {
  const auto world = portal({0, 1, 1, 18, 3, 1, 0, 1, 1, 0, 3, 1, 0, 0});
  EXPECT_FALSE(act(*world, 0, "down").end);
  const StepResult last = act(*world, 0, "down");
  EXPECT_TRUE(last.end && last.score == 1 && last.reward == 0);
  const StepResult just = act(*portal({0, 1, 1, 19, 3, 1, 0, 1, 1, 0, 3, 1, 0, 0}), 0, "up");
  EXPECT_TRUE(just.end && just.reward == 0.1f && just.score == 2);
}

// Each state is a possible one but for the number that the message names.
TEST(Rules, StatesJustOutOfBoundsAreRefused) {
  using State = std::vector<int64_t>;
  const auto error = [](const std::string& name, const Settings& settings, const State& state) {
    return error_of([&] { started({name, settings}, state); });
  };
  const auto refused = [](const std::string& what) { return testing::HasSubstr(what + " is "); };
  const auto at_corridor = [&](const State& state) { return error("corridor", {}, state); };
  EXPECT_EQ(at_corridor({0, 3, 1, 0, 61, 2}), "");
  EXPECT_THAT(at_corridor({0, 3, 1, 0, 62, 2}), refused("the number of steps"));
  EXPECT_THAT(at_corridor({0, 3, 1, 0, 61, 3}), refused("the column"));
  EXPECT_THAT(at_corridor({0, 3, 1, 0, 1, 2}), refused("the column")) << "further than steps";

  const auto at_portal = [&](const State& state) { return error("portal", {{"rooms", "4"}}, state); };
  EXPECT_EQ(at_portal({0, 1, 2, 9, 2, 2, 0, 1, 1, 1, 3, 1, 0, 1, 5, 5, 0, 0}), "");
  EXPECT_THAT(at_portal({0, 2, 1, 9, 2, 2, 0, 1, 1, 1, 3, 1, 0, 1, 5, 5, 0, 0}), refused("the highest room"));
  EXPECT_THAT(at_portal({0, 1, 2, 9, 1, 0, 0, 1, 1, 1, 3, 1, 0, 1, 5, 5, 0, 0}), refused("the row")) << "in a door";
  EXPECT_THAT(at_portal({0, 1, 2, 9, 3, 0, 0, 1, 1, 1, 3, 1, 0, 1, 5, 5, 0, 0}), refused("the row")) << "in a door";
  EXPECT_THAT(at_portal({0, 1, 2, 9, 2, 2, 0, 0, 1, 1, 3, 1, 0, 1, 5, 5, 0, 0}), testing::HasSubstr("distance"))
      << "two doors of one colour";
  EXPECT_THAT(at_portal({0, 1, 2, 9, 2, 2, 0, 1, 1, 2, 3, 1, 0, 1, 5, 5, 0, 0}), testing::HasSubstr("mistakes"));
  EXPECT_THAT(at_portal({0, 1, 2, 9, 2, 2, 0, 1, 1, 1, 3, 1, 0, 1, 5, 5, 0, 1}), testing::HasSubstr("mistakes"))
      << "in a room that was never reached";

  const auto at_maze = [&](const State& state) { return error("t_maze", {{"length", "3"}}, state); };
  EXPECT_EQ(at_maze({0, 3, 1, 3, 3}), "");
  EXPECT_THAT(at_maze({0, 3, 1, 4, 3}), refused("the number of steps"));
  EXPECT_THAT(at_maze({0, 3, 1, 2, 3}), refused("x")) << "further than steps";
  EXPECT_THAT(at_maze({0, 2, 1, 2, 2}), refused("the length"));
}

/// A maze of length 3 from its start, the goal up: what each action earns.
std::vector<float> maze(const std::vector<std::string>& actions) {
  const auto world = started({"t_maze", {{"length", "3"}, {"penalty", "0.75"}}}, {0, 3, 1, 0, 0});
  std::vector<float> rewards;
  for (size_t t = 1; t <= actions.size(); ++t) {
    const StepResult result = act(*world, 0, actions[t - 1]);
    EXPECT_EQ(result.end, t == 4);
    if (result.end) {
      EXPECT_EQ(result.score, result.reward);
    }
    rewards.push_back(result.reward);
  }
  return rewards;
}

// A penalty where x after step t is less than t = 1, 2, 3; none in step 4, the last.
TEST(TMazeRules, RewardsOfWholeEpisodes) {
  using Rewards = std::vector<float>;
  EXPECT_EQ(maze({"right", "right", "right", "up"}), (Rewards{0, 0, 0, 1}));
  EXPECT_EQ(maze({"right", "right", "right", "down"}), (Rewards{0, 0, 0, 0}));
  EXPECT_EQ(maze({"right", "right", "right", "right"}), (Rewards{0, 0, 0, 0}));
  EXPECT_EQ(maze({"up", "right", "right", "right"}), (Rewards{-0.25f, -0.25f, -0.25f, 0}))
      << "walls; at x = 3 too late";
  EXPECT_EQ(maze({"right", "left", "right", "up"}), (Rewards{0, -0.25f, -0.25f, 0})) << "y stays 0 in the corridor";
  EXPECT_EQ(maze({"left", "down", "up", "left"}), (Rewards{-0.25f, -0.25f, -0.25f, 0}));
}

TEST(TMazeRules, TheGoalIsSeenOnce) {
  const auto world = started({"t_maze", {{"length", "2"}}}, {0, 2, 0, 0, 0});
  EXPECT_EQ(world->draw(0), "###.#\n#@..#\n###G#\n");
  EXPECT_EQ(sight_of(*world, 0), Sight({{"agent", "goal down"}}));
  act(*world, 0, "left");
  EXPECT_EQ(sight_of(*world, 0), Sight({kAgent})) << "x = 0 again";
  EXPECT_EQ(world->draw(0), "###.#\n#@..#\n###.#\n");
  const auto end = started({"t_maze", {{"length", "2"}}}, {0, 2, 0, 2, 2});
  EXPECT_EQ(sight_of(*end, 0), Sight({{"agent", "junction"}}));
}

}  // namespace
}  // namespace lapse
