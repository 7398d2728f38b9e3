// An agent in one environment, step by step: what it sees, does and remembers.
#pragma once

#include <functional>

#include "lapse/observe/episode_player.h"
#include "lapse/observe/memory_record.h"

namespace lapse {

/// Episodes, one after the other. The last may have no end.
struct EpisodesRecord : MemoryRecord {
  std::vector<AgentStep> steps;
};

/// Writes down what an agent does and remembers, from the episode `first` of a seed on.
class EpisodeRecorder : public Observer {
 public:
  /// Model and environment must outlive the recorder.
  EpisodeRecorder(Transformer& model, const EnvironmentOptions& environment, uint64_t seed, bool greedy,
                  int64_t first = 0)
      : player_(model, environment, seed, greedy, first), rows_(model, record) {}
  EpisodeRecorder(const EpisodeRecorder&) = delete;

  BlockOptions wants() const override { return {.observe = true}; }
  void token(const SeenToken& seen) override { rows_.add(seen.reports, seen.memory); }

  /// The next step; after an episode's end the first of the next. Error if the model's outputs are not finite.
  const AgentStep& step();
  /// Before the end of an episode: nothing follows.
  void finish() { rows_.end(player_.memory()); }

  EpisodesRecord record;

  int64_t episodes() const { return player_.episodes(); }  ///< that ended, those before `first` among them
  /// The world as it is before the next step.
  const Environments& world() const { return player_.world(); }

 private:
  EpisodePlayer player_;
  MemoryRecorder rows_;
};

struct EpisodesRecorderOptions {
  int64_t episodes = 1, steps = 0;  ///< at most so many; 0 steps: all
  uint64_t seed = 1;
  bool greedy = false;
  std::function<void(int64_t done)> progress = {};  ///< after each step; may be empty
};

EpisodesRecord record_episodes(Transformer& model, const EnvironmentOptions& environment,
                               const EpisodesRecorderOptions& options);

}  // namespace lapse
