#include "lapse/train/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/device.h"
#include "lapse/train/setup.h"
#include "lapse/train/threads.h"

namespace lapse {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Seconds of each update until all took `seconds` together; of two at least, unless the first took far longer. Adds to
/// `steps` those of Update.
std::vector<double> times_of(Learner& learner, Feed& feed, int64_t most, double seconds, double& steps) {
  const auto start = Clock::now();
  std::vector<double> times;
  while (learner.updates() < most && (times.empty() || since(start) < (times.size() == 1 ? 4 * seconds : seconds)) &&
         !interrupted()) {
    const auto begin = Clock::now();
    const Update made = feed.update(learner, /*observe=*/false);
    if (!std::isfinite(made.loss) || !std::isfinite(made.gradient_norm))
      fail(
          fmt::format("update {}: the loss is {} and the gradient norm {}; lower optimiser.rate, lengthen "
                      "optimiser.warmup or set optimiser.clip",
                      learner.updates() + 1, made.loss, made.gradient_norm));
    steps += static_cast<double>(made.steps);
    times.push_back(since(begin));
  }
  if (times.empty()) fail("interrupted before the first update");
  return times;
}

/// One of so many parts of each batch, as a run of its own; of one part the run itself.
Config part_of(Config config, int64_t parts) {
  config.train.batch /= parts;
  if (parts > 1) config.train.parts = 1;
  return config;
}

/// Of the memory of one stream, mean of the layers.
double rows_of(const Learner& learner, const Config& config) {
  double rows = 0;
  for (const auto& part : learner.memory())
    for (const auto& table : part.layers) rows += static_cast<double>(table.rows());
  return rows / static_cast<double>(config.train.batch * config.model.layers);
}

/// The smallest number of equal parts of the batch of which one fits by itself into a quarter of the memory, since all
/// but the first update take more; 0: none.
int64_t parts_that_fit(const Config& config, const Problem& problem, int64_t available) {
  for (int64_t parts = 2; parts <= config.train.batch; ++parts)
    if (config.train.batch % parts == 0 &&
        estimate_memory(part_of(config, parts), problem).least <= static_cast<double>(available) / 4)
      return parts;
  return 0;
}

constexpr double kShare = 0.6;  // of the free memory, that the estimate may be: it is too low for some models

/// Times of updates; where the batch may not fit, of one part of it.
void measure(Trial& trial, const Config& whole, std::unique_ptr<Problem> problem, std::optional<Checkpoint> tuned,
             double seconds) {
  if (trial.memory.least > kShare * static_cast<double>(trial.available_memory))
    trial.parts = parts_that_fit(whole, *problem, trial.available_memory);
  if (trial.parts == 0) return;
  const Config config = part_of(whole, trial.parts);
  if (trial.parts > 1) problem = open_problem(config, tuned ? &*tuned : nullptr);
  const auto learner = make_learner(config, *problem, tuned ? &*tuned : nullptr);
  tuned.reset();  // a whole file, no longer needed
  const auto feed = problem->feed(solo());
  auto times = times_of(*learner, *feed, config.train.updates, seconds, trial.steps_per_update);
  trial.updates = std::ssize(times);
  trial.steps_per_update *= static_cast<double>(trial.parts) / static_cast<double>(trial.updates);
  if (times.size() > 1) times.erase(times.begin());  // the first compiles kernels
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  trial.seconds_per_update = static_cast<double>(trial.parts) * times.at(times.size() / 2);
  trial.peak_memory = peak_memory();
  trial.peak_on_device = peak_memory_on(find_device(config.train.device));
  trial.rows = rows_of(*learner, config);
}

}  // namespace

Trial try_out(const Config& config, double seconds, const std::function<void(const Trial&)>& told) {
  require_new_run(config);
  use_threads(config.train.threads);
  std::optional<Checkpoint> tuned;
  if (!config.train.from.empty()) tuned = Checkpoint::open(config.train.from);
  const Checkpoint* from = tuned ? &*tuned : nullptr;
  auto problem = open_problem(config, from);
  Trial trial{.source = problem->describe(),
              .unit = problem->unit(),
              .memory = estimate_memory(config, *problem),
              .available_memory = usable_memory(find_device(config.train.device))};
  try {
    require_validation(config, *problem, solo());
  } catch (const Error& error) {  // what it would take can be told all the same
    trial.refused = error.what();
  }
  told(trial);
  if (seconds > 0) measure(trial, config, std::move(problem), std::move(tuned), seconds);
  return trial;
}

}  // namespace lapse
