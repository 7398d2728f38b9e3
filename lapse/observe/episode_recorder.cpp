#include "lapse/observe/episode_recorder.h"

#include "lapse/core/process.h"

namespace lapse {

const AgentStep& EpisodeRecorder::step() {
  if (player_.begins()) record.begins.push_back(std::ssize(record.steps));
  AgentStep now = player_.step(*this);
  if (now.result.end) finish();
  return record.steps.emplace_back(std::move(now));
}

EpisodesRecord record_episodes(Transformer& model, const EnvironmentOptions& environment,
                               const EpisodesRecorderOptions& options) {
  EpisodeRecorder recorder(model, environment, options.seed, options.greedy);
  const auto& steps = recorder.record.steps;
  const auto full = [&] {
    return recorder.episodes() == options.episodes || (options.steps > 0 && std::ssize(steps) == options.steps);
  };
  while (!full() && !recorder.record.stopped) {
    recorder.step();
    if (options.progress) options.progress(std::ssize(steps));
    recorder.record.stopped = interrupted();
  }
  recorder.finish();
  return std::move(recorder.record);
}

}  // namespace lapse
