// How well an agent does: episodes with fixed seeds.
#pragma once

#include <functional>
#include <vector>

#include "lapse/train/agent.h"
#include "lapse/train/evaluate.h"

namespace lapse {

struct EpisodeOptions {
  int64_t episodes = 100;
  bool greedy = false;   ///< the likeliest actions; else they are drawn from the policy
  uint64_t seed = 1;     ///< of worlds and draws: episode n is the same whatever else is played
  int64_t streams = 64;  ///< environments at a time
  std::function<void(int64_t done)> progress = {};  ///< after some episodes; may be empty
  Group& group = solo();                            ///< whose ranks share the episodes; progress is then of the own
};

/// What episode number n draws from, whoever plays it.
struct EpisodeDraws {
  Random world, actions;
};
EpisodeDraws episode_draws(const EnvironmentOptions& environment, uint64_t seed, int64_t number);

struct Episode {
  double reward = 0, score = 0;
  int64_t steps = 0;
};

struct EpisodesResult {
  std::vector<Episode> episodes;  ///< all, in order of their numbers; else the first, as far as every one has ended
  std::vector<EvaluationResult::LayerMemory> layers;  ///< |C_t| over all steps that were taken
  int64_t steps = 0;
  double seconds = 0;
  bool stopped = false;  ///< by Ctrl-C, before the end, or because the policy is not finite
  bool finite = true;    ///< the policy, at every step
};

/// Plays so many episodes, each from empty memory. A step is read as soon as it is taken, with memory as it is for one
/// query at a time. Every rank has the result of all.
EpisodesResult play_episodes(Transformer& model, const EnvironmentOptions& environment, const EpisodeOptions& options);

/// A mean and the ends of its 95 % interval.
struct Interval {
  double mean = 0, low = 0, high = 0;
};
/// Of n numbers: 1.96 standard errors; of one number the ends are NaN.
Interval interval_of_mean(const std::vector<double>& values);
/// Of n successes (1) and failures (0): Wilson's score interval.
Interval interval_of_share(const std::vector<double>& values);

}  // namespace lapse
