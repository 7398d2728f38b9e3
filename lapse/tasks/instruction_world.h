// The world of a LIGHT game: rooms that are joined by paths, and agents that walk there (Urbanek et al. 2019).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lapse {

struct LightWorld {
  struct Room {
    std::string name, description;
    std::vector<std::string> objects;  ///< "a pool"
    std::vector<int64_t> exits;        ///< rooms that a path leads to
  };
  struct Agent {
    std::string name;
    int64_t room;  ///< where it is when a game begins
  };
  std::vector<Room> rooms;
  std::vector<Agent> agents;
};

/// From the JSON of a LIGHT game ("complex_world_2020-09.json"). Error that begins with `origin` if it is of another
/// form, names something twice, has a room without exits, or fewer than 2 rooms or 3 agents.
LightWorld parse_light_world(const std::string& json, const std::string& origin);

}  // namespace lapse
