#include "lapse/train/episodes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lapse/rl/registry.h"
#include "lapse/train/agent_testing.h"

namespace lapse {
namespace {

std::unique_ptr<EnvironmentOptions> corridor() {
  for (const auto& entry : environment_table())
    if (entry.name == "corridor") {
      auto options = entry.options();
      set_fields(options->fields(), {{"longest", "8"}});
      return options;
    }
  return nullptr;
}

std::unique_ptr<Transformer> walker(const EnvironmentOptions& environment, const std::string& method = "fixed_span") {
  const auto options =
      method_options(method, {{"max_span", "9"}, {"size", "6"}, {"rate", "3"}, {"window", "2"}, {"stride", "3"}});
  return std::make_unique<Transformer>(tiny_config("post"), *options,
                                       agent_ends(environment.shape().bits(), std::ssize(environment.shape().actions)),
                                       kBlock, Random(1, "weights"));
}

// Episode n is the same whoever plays beside it, and whatever was played before it in the same stream.
void expect_no_dependence(const std::string& method) {
  SCOPED_TRACE(method);
  constexpr int64_t kEpisodes = 80;  // of which threads share those that are played at a time
  ASSERT_GT(acting_groups(kEpisodes, 1), 1);
  const auto environment = corridor();
  const auto model = walker(*environment, method);
  std::vector<EpisodesResult> all;
  for (const auto& [streams, threads] : {std::pair{7, 1}, {7, 3}, {80, 1}, {80, 3}, {200, 2}}) {
    const Threads scope(threads);
    all.push_back(play_episodes(*model, *environment, {.episodes = kEpisodes, .seed = 3, .streams = streams}));
  }
  ASSERT_EQ(all[0].episodes.size(), kEpisodes);
  int64_t steps = 0;
  for (const auto& episode : all[0].episodes) steps += episode.steps;
  for (const auto& result : all) {
    ASSERT_EQ(result.episodes.size(), kEpisodes);
    for (size_t i = 0; i < kEpisodes; ++i) {
      EXPECT_EQ(result.episodes[i].steps, all[0].episodes[i].steps);
      EXPECT_EQ(result.episodes[i].reward, all[0].episodes[i].reward);
      EXPECT_EQ(result.episodes[i].score, all[0].episodes[i].score);
    }
    EXPECT_EQ(result.steps, steps);
    EXPECT_NEAR(result.layers[0].mean, all[0].layers[0].mean, 1e-9);
    EXPECT_EQ(result.layers[0].max, all[0].layers[0].max);
    EXPECT_FALSE(result.stopped);
  }
  const auto others = play_episodes(*model, *environment, {.episodes = kEpisodes, .seed = 4, .streams = 80});
  EXPECT_NE(others.steps, steps);
}

TEST(PlayedEpisodes, DoNotDependOnStreamsOrThreads) {
  for (const char* method : {"fixed_span", "strided", "compressive"}) expect_no_dependence(method);
}

// Two scripts of 4 and 2 steps: at step t of an episode a fixed span of 3 holds min(t, 3) rows.
TEST(PlayedEpisodes, MeanMemoryIsOfTheStepsThatCount) {
  std::vector<Script> scripts(2, random_script(1, 4, 1000));
  scripts[1].resize(2), scripts[1].back().end = true;
  for (auto& script : scripts)
    for (auto& step : script) step.reward = 1;
  const auto options = method_options("fixed_span", {{"max_span", "3"}});
  Transformer model(tiny_config("post"), *options, agent_ends(kCells * kWords, kActions), kBlock, Random(1, "weights"));
  const Threads scope(1);  // which has both scripts
  const auto result = play_episodes(model, ScriptedOptions(scripts), {.episodes = 2, .streams = 2});
  ASSERT_EQ(result.episodes.size(), 2);
  EXPECT_EQ(result.steps, 6);
  EXPECT_EQ(result.episodes[0].reward, 4);
  EXPECT_EQ(result.episodes[1].reward, 2);
  for (const auto& layer : result.layers) {
    EXPECT_DOUBLE_EQ(layer.mean, (0 + 1 + 2 + 3 + 0 + 1) / 6.0);
    EXPECT_EQ(layer.max, 3);
  }
}

TEST(PlayedEpisodes, EndWhereThePolicyIsNotFinite) {
  const auto environment = corridor();
  const auto model = walker(*environment);
  for (auto& [name, tensor] : model->parameters())
    if (name == "layers.0.value") tensor->detach().fill_(std::numeric_limits<float>::infinity());
  const auto result = play_episodes(*model, *environment, {.episodes = 4, .streams = 2});
  EXPECT_FALSE(result.finite);
  EXPECT_TRUE(result.stopped);
  EXPECT_TRUE(play_episodes(*walker(*environment), *environment, {.episodes = 4}).finite);
}

TEST(Interval, IsWilsonsForSharesAndTheNormalElse) {
  const Interval share = interval_of_share({1, 1, 1, 1, 1, 1, 1, 1, 0, 0});  // 8 of 10
  EXPECT_DOUBLE_EQ(share.mean, 0.8);
  EXPECT_NEAR(share.low, 0.4902, 1e-4);
  EXPECT_NEAR(share.high, 0.9433, 1e-4);
  const Interval all = interval_of_share(std::vector<double>(100, 1));
  EXPECT_NEAR(all.low, 0.9630, 1e-4);
  EXPECT_NEAR(all.high, 1, 1e-12);
  for (const size_t n : {1, 7, 40, 1000}) {
    EXPECT_GE(interval_of_share(std::vector<double>(n, 0)).low, 0) << n;
    EXPECT_LE(interval_of_share(std::vector<double>(n, 1)).high, 1) << n;
  }
  EXPECT_EQ(interval_of_mean({1, 1, 1}).low, 1);  // numbers that happen to be 1: rooms, say
  EXPECT_EQ(interval_of_mean({2}).mean, 2);
  EXPECT_TRUE(std::isnan(interval_of_mean({2}).low)) << "one number says nothing of how far others are";
  const Interval other = interval_of_mean({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(other.mean, 2.5);
  EXPECT_NEAR(other.high - other.mean, 1.96 * std::sqrt(5.0 / 3 / 4), 1e-4);
  EXPECT_NEAR(other.mean - other.low, other.high - other.mean, 1e-12);
}

}  // namespace
}  // namespace lapse
