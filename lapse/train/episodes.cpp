#include "lapse/train/episodes.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>

#include "lapse/core/process.h"

namespace lapse {
namespace {

using at::Tensor;

/// Some streams, of which stream i plays the episodes first + i, first + i + stride, ...
class Streams {
 public:
  Streams(Transformer& model, const EnvironmentOptions& environment, const EpisodeOptions& options, int64_t first,
          int64_t count, int64_t stride)
      : model_(model),
        environment_(environment),
        options_(options),
        stride_(stride),
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
    const int64_t n = std::ssize(players_), W = environments_->shape().most_words;
    std::vector<int32_t> bits(n * W), actions(n);
    environments_->observe(0, n, bits.data());
    const Tensor input = at::empty({n, 1, W}, at::kLong), begins = at::empty({n, 1}, at::kBool),
                 lengths = at::empty({n}, at::kLong);
    std::copy(bits.begin(), bits.end(), input.mutable_data_ptr<int64_t>());
    for (int64_t i = 0; i < n; ++i) {
      begins.mutable_data_ptr<bool>()[i] = players_[i].now.steps == 0;
      lengths.mutable_data_ptr<int64_t>()[i] = players_[i].episode >= 0;
    }
    const at::Device device = model_.device();
    const auto y = model_.forward(input.to(device), memory_,
                                  {.observe = true, .lengths = lengths.to(device), .begins = begins.to(device)});
    for (size_t l = 0; l < layers.size(); ++l) {
      layers[l].memory_sum += y.reports[l].memory_sum, layers[l].queries += y.reports[l].queries;
      layers[l].memory_max = std::max(layers[l].memory_max, y.reports[l].memory_max);
    }
    const Tensor logits = y.logits.squeeze(1).to(at::kCPU).contiguous();
    const int64_t A = logits.size(1) - 1;
    for (int64_t i = 0; i < n; ++i) {
      const float* row = logits.const_data_ptr<float>() + i * (A + 1);
      actions[i] = options_.greedy ? likeliest(row, A) : choose(row, A, *players_[i].draws);
    }
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
    player.episode = episode < options_.episodes ? episode : -1, player.now = {};
    const EpisodeDraws draws = episode_draws(environment_, options_.seed, player.episode);
    environments_->begin(i, draws.world);
    player.draws = draws.actions;
  }

  Transformer& model_;
  const EnvironmentOptions& environment_;
  const EpisodeOptions& options_;
  int64_t stride_;
  std::unique_ptr<Environments> environments_;
  ModelMemory memory_;
  std::vector<Player> players_;

 public:
  std::vector<LayerReport> layers;  ///< sums over all steps that count
};

}  // namespace

EpisodeDraws episode_draws(const EnvironmentOptions& environment, uint64_t seed, int64_t number) {
  const auto stream = [&](const char* what) {
    return Random(seed, fmt::format("{}.{}.{}", environment.name(), what, number));
  };
  return {stream("episode"), stream("action")};
}

EpisodesResult play_episodes(Transformer& model, const EnvironmentOptions& environment, const EpisodeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t streams = std::min(options.streams, options.episodes);
  const int64_t groups = std::min<int64_t>(at::get_num_threads(), streams);
  std::vector<std::optional<Episode>> episodes(options.episodes);
  std::vector<std::vector<LayerReport>> layers(groups);
  std::atomic<int64_t> done = 0;
  at::parallel_for(0, groups, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = streams * g / groups, count = streams * (g + 1) / groups - first;
      Streams some(model, environment, options, first, count, streams);
      while (some.playing() && !interrupted()) {
        some.step([&](int64_t number, const Episode& episode) { episodes[number] = episode, ++done; });
        if (g == 0 && options.progress) options.progress(done);
      }
      layers[g] = std::move(some.layers);
    }
  });
  EpisodesResult result;
  for (const auto& episode : episodes)
    if (episode) result.episodes.push_back(*episode), result.steps += episode->steps;
  result.stopped = std::ssize(result.episodes) < options.episodes;
  for (size_t l = 0; l < model.layers().size(); ++l) {
    LayerReport sum;
    for (const auto& of_group : layers) {
      sum.memory_sum += of_group[l].memory_sum, sum.queries += of_group[l].queries;
      sum.memory_max = std::max(sum.memory_max, of_group[l].memory_max);
    }
    result.layers.push_back({sum.memory_mean(), sum.memory_max});
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Interval interval_of(const std::vector<double>& values) {
  constexpr double z = 1.959963984540054;
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  double sum = 0, squares = 0;
  for (const double x : values) sum += x;
  const double mean = sum / n;
  if (std::ranges::all_of(values, [](double x) { return x == 0 || x == 1; })) {
    const double middle = (mean + z * z / (2 * n)) / (1 + z * z / n);
    const double half = z / (1 + z * z / n) * std::sqrt(mean * (1 - mean) / n + z * z / (4 * n * n));
    return {mean, middle - half, middle + half};
  }
  for (const double x : values) squares += (x - mean) * (x - mean);
  const double half = values.size() < 2 ? 0 : z * std::sqrt(squares / (n - 1) / n);
  return {mean, mean - half, mean + half};
}

}  // namespace lapse
