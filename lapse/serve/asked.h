// What several requests may ask for, with its bounds.
#pragma once

#include <vector>

#include "lapse/read/sampler.h"
#include "lapse/serve/json_fields.h"
#include "lapse/serve/library.h"
#include "lapse/serve/play.h"

namespace lapse {

/// "lanes": one or two of {"run", "method", "options"}; absent: the first run as it was trained.
std::vector<LaneSettings> lanes_of(JsonFields& fields);
/// Error if the lane's run, if there is one, or its method knows no such options, or not these values. `where`: before
/// an option's name, "lanes[0].options.".
void require_options(const LaneSettings& lane, const Library& library, const std::string& where);
/// "ids": tokens, by their numbers in the vocabulary; absent: none.
std::vector<int32_t> ids_of(JsonFields& fields);
/// "temperature", "top_k", "top_p".
SamplingOptions sampling_of(JsonFields& fields, const SamplingOptions& otherwise);
/// "stop": a text, or a list of some; absent: none.
std::vector<std::string> stop_of(JsonFields& fields);
uint64_t seed_of(JsonFields& fields, uint64_t otherwise);
/// "seed", "greedy".
PlaySettings play_of(JsonFields& fields, const PlaySettings& otherwise);

}  // namespace lapse
