#include "lapse/observe/episode_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lapse/rl/registry.h"
#include "lapse/train/agent_testing.h"

namespace lapse {
namespace {

std::unique_ptr<EnvironmentOptions> corridor() {
  auto options = std::ranges::find(environment_table(), "corridor", &EnvironmentEntry::name)->options();
  set_field(options->fields()[1], "8", "longest");
  return options;
}

std::unique_ptr<Transformer> walker(const EnvironmentOptions& environment, const MethodOptions& method) {
  const EnvironmentShape shape = environment.shape();
  auto model = std::make_unique<Transformer>(
      tiny_config("post"), method, agent_ends(shape.bits(), std::ssize(shape.actions)), kBlock, Random(1, "weights"));
  vary_spans(*model, Random(1, "spans"));
  return model;
}

/// use(step, the last step of its episode).
template <class Use>
void for_steps(const EpisodesRecord& record, Use use) {
  for (size_t e = 0; e < record.begins.size(); ++e) {
    const int64_t end = e + 1 < record.begins.size() ? record.begins[e + 1] : std::ssize(record.steps);
    for (int64_t i = record.begins[e]; i < end; ++i) use(i, end - 1);
  }
}

TEST(EpisodeRecorder, RowsOfAFixedSpanAreHeldSoLongOrUntilTheEpisodeEnds) {
  const auto environment = corridor();
  const auto model = walker(*environment, *method_options("fixed_span", {{"max_span", "6"}}));
  const auto record = record_episodes(*model, *environment, {.episodes = 6});
  EXPECT_EQ(record.begins.size(), 6);
  for (const auto& layer : record.layers)
    for_steps(record, [&](int64_t i, int64_t last) {
      EXPECT_EQ(layer.held[i], std::min<int64_t>(6, last - i)) << "step " << i;
      EXPECT_EQ(layer.there[i], last - i < 6) << "step " << i;
    });
}

TEST(EpisodeRecorder, ExpiringRowsAreHeldUntilTheirRampEnds) {
  const auto environment = corridor();
  const auto model = walker(*environment, *method_options("expire_span"));
  const auto record = record_episodes(*model, *environment, {.episodes = 6});
  for (const auto& layer : record.layers)
    for_steps(record, [&](int64_t i, int64_t last) {
      const auto stays = static_cast<int64_t>(std::ceil(layer.told.at("span")[i] + 6.5)) - 1;
      EXPECT_EQ(layer.held[i], std::min(stays, last - i)) << "step " << i;
    });
}

// |C_t| are the steps of the present episode that are held then, for every method: nothing of an earlier one.
TEST(EpisodeRecorder, MemoriesAreOfThePresentEpisodeAlone) {
  const auto environment = corridor();
  for (const auto& entry : method_table()) {
    if (entry.name == "compressive") continue;  // its pooled rows stand for several steps
    const auto options = method_options(entry.name, {{"max_span", "9"}, {"budget", "5"}});
    set_fields(options->reading_fields(), {{"budget", "5"}});
    const auto model = walker(*environment, *options);
    const auto record = record_episodes(*model, *environment, {.episodes = 4});
    for (const auto& layer : record.layers) {
      const int64_t itself = layer.sizes[0];  // a query may read its own row
      std::vector<int64_t> sizes(record.steps.size(), itself);
      for_steps(record, [&](int64_t i, int64_t last) {
        EXPECT_LE(layer.held[i], last - i) << entry.name << ", step " << i;
        for (int64_t t = i + 1; t <= i + layer.held[i]; ++t) ++sizes[t];
      });
      EXPECT_EQ(layer.sizes, sizes) << entry.name;
      for (const int64_t begin : record.begins) EXPECT_EQ(layer.sizes[begin], itself) << entry.name;
    }
  }
}

// Episode n of a seed is that of `lapse eval`.
TEST(EpisodeRecorder, PlaysTheEpisodesThatAreEvaluated) {
  const auto environment = corridor();
  const auto model = walker(*environment, *method_options("fixed_span"));
  for (const bool greedy : {false, true}) {
    const auto record = record_episodes(*model, *environment, {.episodes = 5, .seed = 3, .greedy = greedy});
    const auto played = play_episodes(*model, *environment, {.episodes = 5, .greedy = greedy, .seed = 3, .streams = 1});
    ASSERT_EQ(record.begins.size(), 5);
    EXPECT_EQ(std::ssize(record.steps), played.steps);
    for (size_t e = 0; e < 5; ++e) {
      const int64_t end = e < 4 ? record.begins[e + 1] : std::ssize(record.steps);
      EXPECT_EQ(end - record.begins[e], played.episodes[e].steps);
      EXPECT_TRUE(record.steps[end - 1].result.end);
      EXPECT_EQ(record.steps[end - 1].result.score, played.episodes[e].score);
    }
    EXPECT_DOUBLE_EQ(record.layers[0].mean(), played.layers[0].mean);
  }
}

// So `lapse play` needs no more memory for the last of many episodes than for the first.
TEST(EpisodeRecorder, ALaterEpisodeNeedsNoEarlierOnes) {
  const auto environment = corridor();
  for (const char* method : {"fixed_span", "expire_span"}) {
    const auto model = walker(*environment, *method_options(method));
    const auto all = record_episodes(*model, *environment, {.episodes = 4});
    for (int64_t first = 0; first < 4; ++first) {
      EpisodeRecorder one(*model, *environment, /*seed=*/1, /*greedy=*/false, first);
      EXPECT_EQ(one.episodes(), first);
      while (one.episodes() == first) one.step();
      const int64_t begin = all.begins[first];
      for (size_t i = 0; i < one.record.steps.size(); ++i) {
        const AgentStep &step = one.record.steps[i], &known = all.steps[begin + i];
        EXPECT_EQ(step.bits, known.bits);
        EXPECT_EQ(step.action, known.action);
        EXPECT_EQ(step.result.score, known.result.score);
        for (size_t l = 0; l < all.layers.size(); ++l) {
          EXPECT_EQ(one.record.layers[l].held[i], all.layers[l].held[begin + i]);
          EXPECT_EQ(one.record.layers[l].sizes[i], all.layers[l].sizes[begin + i]);
        }
      }
      EXPECT_TRUE(one.record.steps.back().result.end);
      EXPECT_TRUE(all.steps[begin + std::ssize(one.record.steps) - 1].result.end);
    }
  }
}

TEST(EpisodeRecorder, StepsAreAsTheScriptSays) {
  const Script script = {{{0, 4}, 0.5F, false}, {{}, 0, false}, {{5}, -1, true}};
  const auto model = tiny_agent("fixed_span");
  const auto record = record_episodes(*model, ScriptedOptions({script}), {.episodes = 5, .steps = 8});
  ASSERT_EQ(record.steps.size(), 8);
  EXPECT_EQ(record.begins, (std::vector<int64_t>{0, 3, 6}));
  for (size_t i = 0; i < 8; ++i) {
    const AgentStep& step = record.steps[i];
    EXPECT_EQ(step.bits, script[i % 3].bits);
    EXPECT_EQ(step.result.reward, script[i % 3].reward);
    ASSERT_EQ(std::ssize(step.policy), kActions);
    double sum = 0;
    for (const double p : step.policy) sum += p;
    EXPECT_NEAR(sum, 1, 1e-6);
  }
  EXPECT_EQ(record.layers[0].there, std::vector<uint8_t>(8, 1));  // a span of 9 outlives every episode, cut ones too
}

}  // namespace
}  // namespace lapse
