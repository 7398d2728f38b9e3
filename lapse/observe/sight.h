// What an agent sees, for people: the words of each cell, and a label of what is worth naming.
#pragma once

#include <string>
#include <vector>

#include "lapse/rl/environment.h"

namespace lapse {

/// The words of each cell, row by row. Within a cell in descending order, which reads well: "red object".
using Sight = std::vector<std::vector<std::string>>;

/// Of the numbers of bits, as Environments::observe gives them.
Sight sight_of(const EnvironmentShape& shape, const std::vector<int32_t>& bits);

/// Says what is to be seen and where: "↑ red object", "↑ blue door, ↓ red door", "room 3"; "" where that is nothing.
class SightLabels {
 public:
  /// Words that every step of a random walk shows are left out.
  explicit SightLabels(const EnvironmentOptions& environment);

  std::string of(const Sight& sight) const;

 private:
  std::vector<std::string> usual_;
};

/// The side of the square that the cells are; 0 if they are none.
int64_t side_of(int64_t cells);

}  // namespace lapse
