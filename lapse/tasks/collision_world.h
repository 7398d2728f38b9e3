// Two particles on a 16 x 16 grid, and questions about where they met (Sukhbaatar et al. 2021, A.3.3).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lapse/core/random.h"

namespace lapse {

/// One run of the simulation. Each step moves the particles, then asks one question.
class CollisionWorld {
 public:
  static constexpr int64_t kSize = 16, kColours = 5;

  struct Particle {
    std::array<double, 2> position{}, velocity{};
    int64_t colour = 0;

    std::array<int64_t, 2> cell() const;  ///< row and column
  };
  struct Question {
    std::vector<int32_t> tokens;
    int32_t label = 0;  ///< 0: it has no answer yet
  };

  CollisionWorld(bool easy, Random random);

  void step();
  const std::array<Particle, 2>& particles() const { return particles_; }
  Question ask();

 private:
  void move(Particle& particle);
  Question ask_for_colours();
  Question ask_for_the_last();

  bool easy_;
  Random random_;
  std::array<Particle, 2> particles_;
  std::array<int64_t, kColours * kColours> quadrants_{};  // of each ordered pair's last collision; 0: none
  int64_t last_pair_ = -1;
  std::vector<int64_t> newest_;  // quadrants of the last three collisions, newest first
};

}  // namespace lapse
