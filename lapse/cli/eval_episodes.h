// `lapse eval` of a run in an environment.
#pragma once

#include <CLI/CLI.hpp>

#include "lapse/read/reader.h"

namespace lapse {

struct EpisodeArguments {
  int64_t episodes = 1000, seed = 1;
  bool greedy = false;
};

/// Declares --episodes, --greedy and --seed.
void add_episodes(CLI::App& verb, EpisodeArguments& arguments);

/// Plays episodes and prints how they went; returns the exit status. `streams`: environments at a time; 0: as in
/// training.
int eval_episodes(Reader& reader, const EpisodeArguments& arguments, int64_t streams, bool json);

}  // namespace lapse
