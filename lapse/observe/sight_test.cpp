#include "lapse/observe/sight.h"

#include <gtest/gtest.h>

#include "lapse/rl/registry.h"

namespace lapse {
namespace {

std::unique_ptr<EnvironmentOptions> environment(const std::string& name) {
  for (const auto& entry : environment_table())
    if (entry.name == name) return entry.options();
  return nullptr;
}

TEST(Sight, WordsAreInTheirCells) {
  const EnvironmentShape shape = environment("corridor")->shape();  // agent, block, object, door, red, blue
  const Sight sight = sight_of(shape, {1, 6 + 2, 6 + 5, 24, 53, -1, -1});
  ASSERT_EQ(sight.size(), 9);
  EXPECT_EQ(sight[0], (std::vector<std::string>{"block"}));
  EXPECT_EQ(sight[1], (std::vector<std::string>{"blue", "object"}));
  EXPECT_EQ(sight[4], (std::vector<std::string>{"agent"}));
  EXPECT_EQ(sight[8], (std::vector<std::string>{"blue"}));
  EXPECT_TRUE(sight[2].empty());
}

TEST(SightLabels, NameWhatIsNotAlwaysThere) {
  const SightLabels corridor(*environment("corridor"));
  const std::vector<std::string> block = {"block"}, agent = {"agent"};
  EXPECT_EQ(corridor.of({block, {"red", "object"}, block, block, agent, {}, block, block, block}), "↑ red object");
  EXPECT_EQ(corridor.of({block, block, block, {}, agent, {}, block, block, block}), "");
  EXPECT_EQ(corridor.of({block, {"red", "door"}, block, {}, agent, block, block, {"blue", "door"}, block}),
            "↑ red door, ↓ blue door");
  const SightLabels portal(*environment("portal"));
  EXPECT_EQ(portal.of({block, block, block, {}, {"room 3", "agent"}, {}, {}, {}, {}}), "↖↑↗ block, room 3");
  const SightLabels maze(*environment("t_maze"));
  EXPECT_EQ(maze.of({{"goal up", "agent"}}), "goal up");
  EXPECT_EQ(maze.of({agent}), "");
}

}  // namespace
}  // namespace lapse
