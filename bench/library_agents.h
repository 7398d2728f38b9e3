// The library's agents as the trainer runs them, and the cases of the benchmark.
#pragma once

#include <memory>
#include <string>

#include "lapse/train/problem.h"

namespace lapse::bench {

/// "corridor": examples/paper-corridor.toml; "portal": the same model with the paper's settings of Portal. `quick`:
/// small ones. `full`: see LibraryAgents.
struct AgentCase {
  std::string task;
  bool full = false, quick = false;

  std::string name() const { return full ? task + "_full" : task; }
  Config config() const;
};

class LibraryAgents {
 public:
  /// `full`: with spans of nearly L (w = 0, e = 0.995 L), so that memories hold what episodes leave of L rows; else as
  /// the model begins. Acts and learns for so many updates.
  LibraryAgents(const AgentCase& which, int64_t updates);

  double update();      ///< one update as the trainer makes it; its loss
  double rows() const;  ///< that the memory holds of an environment, the mean over layers and environments

  const Config& config() const { return *config_; }
  Learner& learner() { return *learner_; }
  Columns state() const { return feed_->tensors(); }

 private:
  std::unique_ptr<Config> config_;  // the problem refers to it
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Feed> feed_;
};

/// Error unless the library and the eager agents do the same, in small environments of both kinds over a few updates
/// that episodes and spans end in: actions, returns, losses, gradients and new weights.
void check_agents();

}  // namespace lapse::bench
