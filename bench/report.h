// How measured paths are written: as JSON and as lines of a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace lapse::bench {

/// What was measured of one path.
struct Measured {
  std::string name;
  double flops;  ///< of one repeat
  std::vector<double> seconds;
  int64_t peak_memory = 0;  ///< of its own process; 0: not measured
};

/// One object for each path. The first is "fused", and the others get the ratio of its time to theirs.
Json paths_json(const std::vector<Measured>& paths, double peak_flops);

/// The same as lines of text with a heading.
std::string paths_table(const Json& paths);

/// A line on stderr that says what is being done; results go to stdout.
void note(const std::string& text);

}  // namespace lapse::bench
