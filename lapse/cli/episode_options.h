// The options of verbs that play episodes with a run.
#pragma once

#include <string>
#include <vector>

#include "lapse/cli/command.h"
#include "lapse/train/config.h"

namespace lapse {

struct EpisodeArguments {
  int64_t episodes = 1000, seed = 1;
  bool greedy = false;
  std::vector<std::string> set;  ///< "corridor.longest=400"
};

/// Declares --episodes, --greedy, --seed and --set; what `arguments` holds are the defaults.
void add_episodes(const Command& verb, EpisodeArguments& arguments);

/// The run's configuration with the environment of `set`. Error if an agent that knows the run's environment would see
/// other cells or words there, or have other actions.
Config elsewhere(const Config& trained, const std::vector<std::string>& set);

/// Error if one of these options was given to the verb: "--data WHY; leave it out".
void refuse_given(const Command& verb, const std::vector<std::string>& options, const std::string& why);

/// Of a verb that reads texts and plays episodes: Error if it was given one of `text`, which are for texts alone, and
/// the run acts in an environment; or one of add_episodes', and it does not.
void refuse_of_the_other(const Command& verb, bool acts, const std::vector<std::string>& text);

}  // namespace lapse
