// An agent in one environment, step by step: what it sees, does and remembers.
#pragma once

#include <functional>

#include "lapse/observe/memory_record.h"
#include "lapse/rl/environment.h"
#include "lapse/train/episodes.h"

namespace lapse {

struct AgentStep {
  std::vector<int32_t> bits;   ///< that are set in what it saw
  std::vector<double> policy;  ///< the probability of each action
  double value;                ///< what it expected of the rest of the episode
  int32_t action;              ///< that it took
  StepResult result;           ///< of the action
};

/// Episodes, one after the other. The last may have no end.
struct EpisodesRecord : MemoryRecord {
  std::vector<AgentStep> steps;
};

/// Plays the episodes 0, 1, ... of a seed, those of play_episodes, in one stream of memory.
class EpisodeRecorder {
 public:
  /// Model and environment must outlive the recorder.
  EpisodeRecorder(Transformer& model, const EnvironmentOptions& environment, uint64_t seed, bool greedy);
  EpisodeRecorder(const EpisodeRecorder&) = delete;

  /// The next step; after an episode's end the first of the next. Error if the model's outputs are not finite.
  const AgentStep& step();
  /// Before the end of an episode: nothing follows.
  void finish() { rows_.end(memory_); }

  EpisodesRecord record;
  int64_t episodes = 0;  ///< that ended

  /// The world as it is before the next step.
  const Environments& world() const { return *world_; }

 private:
  Transformer& model_;
  const EnvironmentOptions& environment_;
  uint64_t seed_;
  bool greedy_;
  std::unique_ptr<Environments> world_;
  EpisodeDraws draws_;
  ModelMemory memory_;
  MemoryRecorder rows_;
  bool begins_ = true;  // the next step is an episode's first
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
