// Two particles on a square grid, and questions about where they met (Sukhbaatar et al. 2021, A.3.3).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lapse/core/random.h"

namespace lapse {

/// The paper's, unless said otherwise.
struct CollisionRules {
  bool easy = false;  ///< no colours
  int64_t grid = 16;  ///< cells on a side; even, so that quadrants are equal
  int64_t colours = 5;

  // What the tokens of a step begin at: rows are 0 ... grid - 1.
  int32_t first_column() const { return static_cast<int32_t>(grid); }
  int32_t first_colour() const { return static_cast<int32_t>(2 * grid); }
  int32_t first_asked() const { return static_cast<int32_t>(2 * grid + (easy ? 0 : colours)); }
  int64_t tokens_of_step() const { return easy ? 5 : 8; }
};

/// One run of the simulation. Each step moves the particles, then asks one question.
class CollisionWorld {
 public:
  struct Particle {
    std::array<double, 2> position{}, velocity{};
    int64_t colour = 0;

    std::array<int64_t, 2> cell() const;  ///< row and column
  };
  struct Question {
    std::vector<int32_t> tokens;
    int32_t label = 0;  ///< 0: it has no answer yet
  };

  CollisionWorld(const CollisionRules& rules, Random random);

  void step();
  const std::array<Particle, 2>& particles() const { return particles_; }
  Question ask();

 private:
  double edge() const { return static_cast<double>(rules_.grid - 1); }
  void move(Particle& particle);
  Question ask_for_colours();
  Question ask_for_the_last();

  CollisionRules rules_;
  Random random_;
  std::array<Particle, 2> particles_;
  std::vector<int64_t> quadrants_;  // of each ordered pair's last collision; 0: none
  int64_t last_pair_ = -1;
  std::vector<int64_t> newest_;  // quadrants of the last three collisions, newest first
};

}  // namespace lapse
