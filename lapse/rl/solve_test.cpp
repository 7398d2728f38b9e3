// Each environment can be solved by who sees what an agent sees and forgets nothing.
#include <gtest/gtest.h>

#include "lapse/rl/testing.h"

namespace lapse {
namespace {

/// The word of this cell that begins so; "" if there is none.
std::string word(const std::set<std::string>& cell, const std::string& beginning) {
  for (const std::string& word : cell)
    if (word.starts_with(beginning)) return word;
  return "";
}

std::string colour(const std::set<std::string>& cell) {
  for (const char* name : {"red", "blue", "green", "yellow", "purple", "orange", "white", "cyan"})
    if (cell.contains(name)) return name;
  return "";
}

struct Episode {
  double reward = 0;  ///< the sum
  float score = 0;
  int64_t steps = 0;
};

/// Plays environment 0 to the end of the episode: choose(sight) gives an action's name.
template <class Choose>
Episode play(Environments& environments, Choose choose) {
  Episode episode;
  for (StepResult result; !result.end; ++episode.steps) {
    result = act(environments, 0, choose(sight_of(environments, 0)));
    episode.reward += result.reward;
    episode.score = result.score;
  }
  return episode;
}

std::unique_ptr<Environments> one(const std::string& name, const Settings& settings, uint64_t seed) {
  return options_of({name, settings})->make(1, seed);
}

class CorridorPlayer {
 public:
  std::string operator()(const Sight& sight) {
    const auto& above = sight[1];
    if (above.contains("object")) object_ = colour(above);
    if (!above.contains("door")) return "right";
    return colour(above) == object_ ? "up" : "down";
  }

 private:
  std::string object_;
};

TEST(Corridor, IsSolvedByRememberingTheObject) {
  for (const Settings& settings : {Settings{}, Settings{{"longest", "3"}}}) {
    const auto corridor = one("corridor", settings, 2);
    std::set<int64_t> lengths;
    for (int episode = 0; episode < 2000; ++episode) {
      const Episode played = play(*corridor, CorridorPlayer());
      ASSERT_EQ(played.reward, 1);
      ASSERT_EQ(played.score, 1);
      lengths.insert(played.steps);
    }
    EXPECT_EQ(*lengths.begin(), 3);
    EXPECT_EQ(*lengths.rbegin(), settings.empty() ? 200 : 3);
  }
}

/// Goes up one cell, from where both doors are seen, then to one of them.
class PortalPlayer {
 public:
  std::string operator()(const Sight& sight) {
    const std::string room = word(sight[4], "room ");
    if (moves_.empty()) {
      if (tried_) learn(room);
      room_ = room;
      moves_ = {"up", "", "up"};
    }
    std::string move = moves_.front();
    moves_.erase(moves_.begin());
    if (!move.empty()) return move;
    const std::string left = colour(sight[0]), right = colour(sight[2]);
    EXPECT_TRUE(sight[0].contains("door") && sight[2].contains("door") && left != right);
    const bool go_right = good_[room_] == right || bad_[room_] == left;
    door_ = go_right ? right : left;
    tried_ = true;
    return go_right ? "right" : "left";
  }

 private:
  void learn(const std::string& arrived) {
    const int number = std::stoi(room_.substr(5));
    (arrived == "room " + std::to_string(number + 1) ? good_ : bad_)[room_] = door_;
  }

  std::vector<std::string> moves_;
  std::string room_, door_;
  bool tried_ = false;
  std::map<std::string, std::string> good_, bad_;
};

TEST(Portal, IsSolvedWithOneMistakeInARoomAtMost) {
  const auto portal = one("portal", {{"most_steps", "100000"}}, 2);
  for (int episode = 0; episode < 20; ++episode) {
    const Episode played = play(*portal, PortalPlayer());
    ASSERT_EQ(played.score, 50);
    ASSERT_GE(played.reward, 0.1 * 49 * 50 / 2 - 1e-3) << "each room left at least once";
    ASSERT_GE(played.steps, 3 * 49);
  }
}

// docs/environments.md quotes the mean.
TEST(Portal, PaperStepsSufficeForMostRooms) {
  const auto portal = one("portal", {}, 2);
  double sum = 0;
  for (int episode = 0; episode < 1000; ++episode) {
    const Episode played = play(*portal, PortalPlayer());
    ASSERT_LE(played.steps, 1000);
    sum += played.score;
  }
  RecordProperty("rooms", std::to_string(sum / 1000));
  EXPECT_NEAR(sum / 1000, 34.9, 0.05) << "docs/environments.md quotes it";
}

TEST(TMaze, IsSolvedByRememberingTheGoal) {
  for (const int length : {1, 5, 50, 1500}) {
    const auto maze = one("t_maze", {{"length", std::to_string(length)}}, 2);
    std::set<std::string> goals;
    for (int episode = 0; episode < 20; ++episode) {
      std::string goal;
      const Episode played = play(*maze, [&](const Sight& sight) -> std::string {
        if (goal.empty()) goal = word(sight[0], "goal ").substr(5);
        return sight[0].contains("junction") ? goal : "right";
      });
      ASSERT_EQ(played.reward, 1);
      ASSERT_EQ(played.score, 1);
      ASSERT_EQ(played.steps, length + 1);
      goals.insert(goal);
    }
    EXPECT_EQ(goals.size(), 2u);
  }
}

}  // namespace
}  // namespace lapse
