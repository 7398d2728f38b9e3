#include "lapse/train/episodes.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <mutex>
#include <optional>

#include "lapse/core/process.h"
#include "lapse/model/policy.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

/// Some streams, of which stream i plays the episodes first + i, first + i + stride, ... before `end`.
class Streams {
 public:
  Streams(Transformer& model, const EnvironmentOptions& environment, const EpisodeOptions& options, int64_t first,
          int64_t count, int64_t stride, int64_t end)
      : model_(model),
        environment_(environment),
        options_(options),
        stride_(stride),
        end_(end),
        environments_(environment.make(count, options.seed)),
        memory_(model.begin(count, Stored::projections)),
        players_(count),
        layers(model.layers().size()) {
    for (int64_t i = 0; i < count; ++i) begin(i, first + i);
  }

  bool playing() const {
    return std::ranges::any_of(players_, [](const Player& player) { return player.episode >= 0; });
  }

  /// One step of all; calls ended(number, episode) for those that end with it.
  template <class Ended>
  void step(const Ended& ended) {
    const int64_t n = std::ssize(players_);
    const Tensor lengths = at::empty({n}, at::kLong);
    std::vector<int64_t> begun;
    for (int64_t i = 0; i < n; ++i) {
      if (players_[i].now.steps == 0) begun.push_back(i);
      lengths.mutable_data_ptr<int64_t>()[i] = players_[i].episode >= 0;
    }
    model_.reset(memory_, begun);  // at time 0 again: what some methods keep depends on the time
    const at::Device device = model_.device();
    const auto y =
        model_.forward(sent(observed(*environments_, 0, n), device), memory_, {.observe = true, .lengths = lengths});
    for (size_t l = 0; l < layers.size(); ++l) {
      layers[l].memory_sum += y.reports[l].memory_sum, layers[l].queries += y.reports[l].queries;
      layers[l].memory_max = std::max(layers[l].memory_max, y.reports[l].memory_max);
    }
    const Tensor logits = y.logits.squeeze(1).to(at::kCPU).contiguous();
    finite = std::all_of(logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel(),
                         [](float x) { return std::isfinite(x); });
    if (!finite) return;
    std::vector<int32_t> actions(n);
    for (int64_t i = 0; i < n; ++i)
      actions[i] = choose(logits.const_data_ptr<float>() + i * logits.size(1), actions_of(logits), *players_[i].draws,
                          options_.greedy);
    std::vector<StepResult> results(n);
    environments_->step(0, n, actions.data(), results.data());
    for (int64_t i = 0; i < n; ++i) {
      Player& player = players_[i];
      ++player.now.steps, player.now.reward += results[i].reward;
      if (!results[i].end) continue;
      player.now.score = results[i].score;
      if (player.episode >= 0) ended(player.episode, player.now);
      begin(i, player.episode < 0 ? -1 : player.episode + stride_);
    }
  }

 private:
  struct Player {
    int64_t episode = -1;  ///< its number; -1: none is left, and what is played does not count
    Episode now;
    std::optional<Random> draws;
  };

  void begin(int64_t i, int64_t episode) {
    Player& player = players_[i];
    player.episode = episode < end_ ? episode : -1, player.now = {};
    const EpisodeDraws draws = episode_draws(environment_, options_.seed, player.episode);
    environments_->begin(i, draws.world);
    player.draws = draws.actions;
  }

  Transformer& model_;
  const EnvironmentOptions& environment_;
  const EpisodeOptions& options_;
  int64_t stride_, end_;
  std::unique_ptr<Environments> environments_;
  ModelMemory memory_;
  std::vector<Player> players_;

 public:
  std::vector<LayerReport> layers;  ///< sums over all steps that count
  bool finite = true;               ///< the policy; else nothing was done in the last step
};

}  // namespace

EpisodeDraws episode_draws(const EnvironmentOptions& environment, uint64_t seed, int64_t number) {
  const auto stream = [&](const char* what) {
    return Random(seed, fmt::format("{}.{}.{}", environment.name(), what, number));
  };
  return {stream("episode"), stream("action")};
}

namespace {

/// What this rank played of all episodes.
struct Played {
  std::vector<std::optional<Episode>> episodes;
  std::vector<LayerReport> layers;
  bool finite = true;
};

Played play_share(Transformer& model, const EnvironmentOptions& environment, const EpisodeOptions& options) {
  const auto [from, own] = share_of(options.episodes, options.group.rank(), options.group.size());
  const int64_t streams = std::min(options.streams, own);
  const int64_t groups = streams > 0 ? acting_groups(streams, 1) : 0;
  Played played{std::vector<std::optional<Episode>>(options.episodes), {}};
  std::vector<std::vector<LayerReport>> layers(groups);
  std::atomic<int64_t> done = 0;
  std::atomic<bool> finite = true;
  std::mutex telling;
  at::parallel_for(0, groups, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    std::deque<Streams> mine;  // in turn, so that the first episodes end first
    for (int64_t g = begin; g < end; ++g) {
      const auto [first, count] = share_of(streams, g, groups);
      mine.emplace_back(model, environment, options, from + first, count, streams, from + own);
    }
    for (bool playing = true; playing && finite && !interrupted();) {
      playing = false;
      for (Streams& some : mine) {
        if (!some.playing()) continue;
        playing = true;
        some.step([&](int64_t number, const Episode& episode) { played.episodes[number] = episode, ++done; });
        if (!some.finite) finite = false;
      }
      if (const std::unique_lock one(telling, std::try_to_lock); one && options.progress) options.progress(done);
    }
    for (int64_t g = begin; g < end; ++g) layers[g] = std::move(mine[g - begin].layers);
  });
  played.finite = finite;
  played.layers.resize(model.layers().size());
  for (const auto& of_group : layers)
    for (size_t l = 0; l < played.layers.size(); ++l) {
      LayerReport& sum = played.layers[l];
      sum.memory_sum += of_group[l].memory_sum, sum.queries += of_group[l].queries;
      sum.memory_max = std::max(sum.memory_max, of_group[l].memory_max);
    }
  return played;
}

/// What all ranks played, by sums over tables of which each fills its own lines.
void join(Played& played, Group& group) {
  if (group.alone()) return;
  std::vector<double> table;
  for (const auto& episode : played.episodes) {
    const Episode e = episode.value_or(Episode{});
    table.insert(table.end(), {episode ? 1. : 0., e.reward, e.score, static_cast<double>(e.steps)});
  }
  table.push_back(played.finite ? 0 : 1);
  group.sum(table);
  played.finite = table.back() == 0;
  for (size_t i = 0; i < played.episodes.size(); ++i)
    if (const double* line = table.data() + 4 * i; line[0] > 0)
      played.episodes[i] = Episode{line[1], line[2], std::llround(line[3])};
  for (LayerReport& layer : played.layers) {
    std::vector<double> most(group.size());
    most[group.rank()] = layer.memory_max;
    std::array<double, 2> sums = {static_cast<double>(layer.memory_sum), static_cast<double>(layer.queries)};
    group.sum(sums), group.sum(most);
    layer.memory_sum = sums[0], layer.queries = std::llround(sums[1]),
    layer.memory_max = *std::ranges::max_element(most);
  }
}

}  // namespace

EpisodesResult play_episodes(Transformer& model, const EnvironmentOptions& environment, const EpisodeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Played played = play_share(model, environment, options);
  join(played, options.group);
  EpisodesResult result;
  // Of those that ended before an interruption the short ones would be too many.
  for (const auto& episode : played.episodes) {
    if (!episode) break;
    result.episodes.push_back(*episode), result.steps += episode->steps;
  }
  result.finite = played.finite;
  result.stopped = std::ssize(result.episodes) < options.episodes;
  for (const LayerReport& layer : played.layers)
    result.layers.push_back(
        {layer.memory_mean(), layer.memory_max, layer.memory_sum, static_cast<double>(layer.queries)});
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

namespace {

constexpr double kDeviations = 1.959963984540054;  // of a normal distribution, within which 95 % lie

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

}  // namespace

Interval interval_of_mean(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  const double mean = mean_of(values);
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  const double half = kDeviations * std::sqrt(squares / (n - 1) / n);  // n = 1: NaN
  return {mean, mean - half, mean + half};
}

Interval interval_of_share(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  const double share = mean_of(values), z = kDeviations;
  const double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {share, std::max(0., middle - half), std::min(1., middle + half)};
}

}  // namespace lapse
