// An agent that acts in one environment, step by step, under an observer's eyes.
#pragma once

#include <memory>

#include "lapse/observe/observer.h"
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

/// Plays the episodes `first`, `first` + 1, ... of a seed, those of play_episodes, in one stream of memory, whose
/// clock goes on: for methods that keep rows by the time the later episodes may differ.
class EpisodePlayer {
 public:
  /// Model and environment must outlive the player.
  EpisodePlayer(Transformer& model, const EnvironmentOptions& environment, uint64_t seed, bool greedy,
                int64_t first = 0);
  EpisodePlayer(const EpisodePlayer&) = delete;

  /// The next step; after an episode's end the first of the next. Error if the model's outputs are not finite.
  AgentStep step(Observer& observer);
  /// Whether the next step is an episode's first.
  bool begins() const { return state_.begins; }
  int64_t episodes() const { return state_.episodes; }  ///< that ended, those before `first` among them

  /// All that a step changes. Copies are cheap.
  struct State {
    ModelMemory memory;
    Random actions;
    std::vector<int64_t> world;
    int64_t episodes = 0;
    bool begins = true;
  };
  State save() const;
  void restore(const State& state);
  /// What a step at this state would report, asked for as `how` says. Changes nothing.
  std::vector<LayerReport> look(const State& state, BlockOptions how);

  const ModelMemory& memory() const { return state_.memory; }
  /// The world as it is before the next step.
  const Environments& world() const { return *world_; }

 private:
  at::Tensor seen(std::vector<int32_t>& bits) const;
  Transformer::Result read(const at::Tensor& input, BlockOptions how);
  void begin_episode();

  Transformer& model_;
  const EnvironmentOptions& environment_;
  uint64_t seed_;
  bool greedy_;
  std::unique_ptr<Environments> world_;
  State state_;
};

}  // namespace lapse
