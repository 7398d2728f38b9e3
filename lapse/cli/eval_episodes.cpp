#include "lapse/cli/eval_episodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lapse/cli/memory_sizes.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/rl/success.h"
#include "lapse/train/device.h"
#include "lapse/train/episodes.h"
#include "lapse/train/memory_estimate.h"
#include "lapse/train/shares.h"

namespace lapse {
namespace {

/// Whether the environment, whatever was drawn, gives 0 and 1 alone.
bool is_share(const std::string& name, const EnvironmentOptions& environment) {
  const auto* successes = dynamic_cast<const SuccessOptions*>(&environment);
  return successes && (name == environment.shape().score || (name == "return" && successes->returns_score()));
}

/// Between which a mean must lie: no interval reaches further.
std::pair<double, double> bounds_of(const std::string& name, const EnvironmentShape& shape) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  if (name == shape.score) return {shape.least_score, shape.best_score};
  if (name == "episode_steps") return {1, static_cast<double>(shape.most_steps)};
  return {-kAny, kAny};
}

Json to_json(const EpisodesResult& result, const EnvironmentOptions& environment) {
  const EnvironmentShape shape = environment.shape();
  std::vector<double> scores, rewards, steps;
  for (const auto& episode : result.episodes) {
    scores.push_back(episode.score), rewards.push_back(episode.reward);
    steps.push_back(static_cast<double>(episode.steps));
  }
  Json json;
  for (const auto& [name, values] : {std::pair{shape.score, scores}, {"return", rewards}, {"episode_steps", steps}}) {
    const Interval interval = is_share(name, environment) ? interval_of_share(values) : interval_of_mean(values);
    const auto [least, most] = bounds_of(name, shape);
    json[name] = interval.mean;
    json[name + "_low"] = std::max(interval.low, least), json[name + "_high"] = std::min(interval.high, most);
  }
  json["steps"] = result.steps;
  json.update(memory_of(result.layers));
  json["seconds"] = result.seconds;
  // Memory and speed are over all steps that were taken, also of episodes that an interruption left out.
  json["steps_per_second"] = result.layers[0].queries / result.seconds;
  json["peak_memory"] = peak_memory();
  json["complete"] = !result.stopped;
  return json;
}

std::string ends_of(const Json& low, const Json& high) {
  const double from = low.get<double>(), to = high.get<double>();
  return std::isfinite(from) ? fmt::format("  (95 %: {:.4f} ... {:.4f})", from, to) : "";
}

void print(const Json& json, const std::string& score) {
  for (const std::string& name : {score, std::string("return"), std::string("episode_steps")})
    std::cout << fmt::format("{:<20}{:.4f}{}\n", name == "episode_steps" ? "steps of an episode" : name,
                             json[name].get<double>(), ends_of(json[name + "_low"], json[name + "_high"]));
  std::cout << fmt::format("{:<20}{}\n{:<20}{:.0f}\n{:<20}{}\n\n{}", "episodes", json["episodes"].get<int64_t>(),
                           "steps/s", json["steps_per_second"].get<double>(), "peak memory",
                           byte_size(json["peak_memory"].get<double>()), table_of_memory(json));
}

/// Error if so many environments at a time may need more than this process's part of the free memory.
std::string require_room(double needed, int64_t environments, at::Device device, const Group& group) {
  const auto free = static_cast<double>(free_memory(device, group.neighbours()));
  if (needed > free)
    fail(fmt::format("{} environments at a time may need {} of memory, and {} are free here; lower --streams",
                     environments, byte_size(needed), byte_size(free)));
  return "";
}

}  // namespace

int eval_episodes(Reader& reader, const ReadingOptions& reading, const EpisodeArguments& arguments, int64_t streams,
                  bool json) {
  const auto model = reader.model();
  const Config config = elsewhere(reader.config(), arguments.set);
  const EnvironmentOptions& environment = *config.environment();
  Group& group = join_group(kPatience);
  if (!group.alone())
    require_agreement(group,
                      fmt::format("{}set = {}\nepisodes = {}\ngreedy = {}\nseed = {}\n", reader.described(),
                                  fmt::join(arguments.set, " "), arguments.episodes, arguments.greedy, arguments.seed));
  reader.checkpoint.close();
  const int64_t most = share_of(arguments.episodes, group.size() - 1, group.size()).count;  // of a rank: the last one's
  const int64_t at_a_time = std::min(streams > 0 ? streams : reader.config().train.evaluated(), most);
  found_by_first(group, [&] {
    return require_room(acting_bytes(config, *reader.method, at_a_time), at_a_time, model->device(), group);
  });
  catch_interrupts();
  const int64_t played = share_of(arguments.episodes, group.rank(), group.size()).count;
  Progress progress("eval", "episode", played, 0, json || !group.first() || played == 0);
  const auto result = play_episodes(*model, environment,
                                    {.episodes = arguments.episodes,
                                     .greedy = arguments.greedy,
                                     .seed = static_cast<uint64_t>(arguments.seed),
                                     .streams = at_a_time,
                                     .progress = [&](int64_t done) { progress.update(done); },
                                     .group = group});
  if (!result.stopped && result.finite && played > 0) progress.update(played);
  progress.finish();
  if (!result.finite) fail(fmt::format("{}: {}", reader.checkpoint.path().string(), kPolicyNotFinite));
  if (result.episodes.empty())
    fail("interrupted before episode 0 ended, and means are of the first ones; with fewer --streams they end sooner");
  Json all = {{"run", reader.checkpoint.path().string()},
              {"method", reader.method->name()},
              {"environment", reader.config().task_name},
              {"set", arguments.set},
              {"episodes", result.episodes.size()},
              {"actions", arguments.greedy ? "likeliest" : "drawn"},
              {"seed", arguments.seed},
              {"streams", at_a_time},
              {"options", to_json(reading)},
              {"config", read_by(config, reading)}};
  all.update(to_json(result, environment));
  if (!group.first()) return 0;
  if (json)
    std::cout << to_text(all, 2) << '\n';
  else
    print(all, environment.shape().score);
  if (result.stopped)
    fail(
        "interrupted: these are the numbers of the first episodes, as far as all had ended; memory and steps/s are of "
        "all steps taken");
  return 0;
}

}  // namespace lapse
