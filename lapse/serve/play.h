// Agents in their worlds, step by step: each lane's agent plays the same episodes.
#pragma once

#include <memory>
#include <vector>

#include "lapse/observe/episode_player.h"
#include "lapse/observe/sight.h"
#include "lapse/serve/events.h"
#include "lapse/serve/subject.h"

namespace lapse {

struct PlaySettings {
  uint64_t seed = 1;
  bool greedy = false;  ///< the likeliest actions; else they are drawn from the policy

  bool operator==(const PlaySettings&) const = default;
};

class Play : public Subject {
 public:
  /// All act in the first lane's environment.
  Play(const std::vector<std::shared_ptr<const Opened>>& opened, std::vector<LaneSettings> lanes,
       const PlaySettings& settings);

  const std::shared_ptr<const Opened>& opened() const { return agents_[0]->opened; }  ///< of the first lane
  const std::vector<LaneSettings>& lanes() const { return lanes_; }
  const PlaySettings& settings() const { return settings_; }

  int64_t time() const override { return time_; }
  std::function<std::string()> step() override;
  std::shared_ptr<const State> save() const override;
  void restore(const State& state) override;
  Json describe() const override;
  Json told() const override;
  Json row(int64_t time, const State& before) override;

 private:
  struct Saved;
  using Weights = std::vector<std::vector<double>>;  ///< of a row: in each layer and head
  struct Agent {
    Agent(std::shared_ptr<const Opened> opened, const EnvironmentOptions& environment, const PlaySettings& settings);
    std::shared_ptr<const Opened> opened;
    EpisodePlayer player;
    Stream stream;
  };
  Json act(Agent& agent) const;
  /// How the newest step read the row of that time, for each agent. The state afterwards is an earlier one.
  std::vector<Weights> reads_again(int64_t time, const State& before);
  const EnvironmentOptions& environment() const { return *opened()->reader.config().environment(); }

  std::vector<LaneSettings> lanes_;
  PlaySettings settings_;
  std::vector<std::unique_ptr<Agent>> agents_;
  EnvironmentShape shape_;
  SightLabels labels_;
  int64_t time_ = 0;
};

}  // namespace lapse
