// `lapse eval` of a run in an environment.
#pragma once

#include "lapse/cli/episode_options.h"
#include "lapse/read/reader.h"

namespace lapse {

/// Plays episodes and prints how they went; returns the exit status. `streams`: environments at a time; 0: as in
/// training. `reading`: how the reader was opened.
int eval_episodes(Reader& reader, const ReadingOptions& reading, const EpisodeArguments& arguments, int64_t streams,
                  bool json);

}  // namespace lapse
