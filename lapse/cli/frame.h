// What `lapse play` shows: of a world, what an agent sees of it, and what it remembers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lapse/observe/episode_recorder.h"
#include "lapse/observe/sight.h"

namespace lapse {

/// The words of each cell, as a grid.
std::string draw_sight(const Sight& sight, bool colour);

/// Of a map as wide as `columns`, the part around the agent.
std::string around_agent(const std::string& map, int columns);

/// One step of a record: what was seen and done, and of which earlier steps of the episode each layer had rows. Labels
/// are those of all steps.
struct StepFrame {
  const EpisodesRecord& record;
  int64_t first_episode;  ///< the number of the record's first
  const EnvironmentShape& shape;
  const std::vector<std::string>& labels;
  std::string map;    ///< may be empty; left out where there is no room for it
  int columns, rows;  ///< of the terminal, which the frame is made to fit
  bool colour;

  std::string draw(int64_t step) const;

 private:
  std::string draw_map(int64_t room) const;
  std::string draw_layers(int64_t begin, int64_t step, int64_t room) const;
  std::string draw_memory(const LayerRecord& layer, int64_t begin, int64_t step, int64_t most_listed) const;
};

}  // namespace lapse
