// `lapse play`: a person in an environment, or an agent that is watched there.
#pragma once

#include "lapse/cli/episode_options.h"
#include "lapse/read/reader.h"
#include "lapse/rl/environment.h"

namespace lapse {

struct PlayArguments {
  std::string environment;
  ReadingOptions reading;
  EpisodeArguments episodes{.episodes = 1};
  double speed = 5;  ///< steps per second
  bool map = false;
};

constexpr int kColumns = 100;  // of a frame where there is no terminal

/// Both on a terminal, if there is one; else they read words from standard input, and print one frame below the other.
/// They return the exit status.
int play_yourself(const EnvironmentOptions& environment, const PlayArguments& arguments);
int watch_agent(Transformer& model, const EnvironmentOptions& environment, const PlayArguments& arguments);

}  // namespace lapse
