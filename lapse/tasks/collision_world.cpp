#include "lapse/tasks/collision_world.h"

#include <cmath>

namespace lapse {
namespace {

constexpr double kSpeed = 0.5;       // standard deviation of a velocity, per axis
constexpr double kNewColour = 0.05;  // a step
constexpr double kAskForLast = 0.4;  // the pair that collided last, rather than any
constexpr int32_t kThreeQuadrants = 5;

}  // namespace

std::array<int64_t, 2> CollisionWorld::Particle::cell() const {
  return {std::lround(position[0]), std::lround(position[1])};
}

CollisionWorld::CollisionWorld(const CollisionRules& rules, Random random)
    : rules_(rules), random_(std::move(random)), quadrants_(rules.colours * rules.colours) {
  for (Particle& particle : particles_) {
    for (double& x : particle.position) x = edge() * random_.uniform();
    for (double& v : particle.velocity) v = kSpeed * random_.normal();
    particle.colour = static_cast<int64_t>(random_.below(rules_.colours));
  }
}

void CollisionWorld::move(Particle& particle) {
  const auto leaves = [&](int axis) {
    const double x = particle.position[axis] + particle.velocity[axis];
    return x <= 0 || x >= edge();
  };
  while (leaves(0) || leaves(1))
    for (double& v : particle.velocity) v = kSpeed * random_.normal();
  for (int axis = 0; axis < 2; ++axis) particle.position[axis] += particle.velocity[axis];
  if (random_.uniform() < kNewColour) particle.colour = static_cast<int64_t>(random_.below(rules_.colours));
}

void CollisionWorld::step() {
  for (Particle& particle : particles_) move(particle);
  const auto cell = particles_[0].cell();
  if (cell != particles_[1].cell()) return;
  const int64_t quadrant = 2 * (cell[0] >= rules_.grid / 2 ? 1 : 0) + (cell[1] >= rules_.grid / 2 ? 1 : 0);
  last_pair_ = rules_.colours * particles_[0].colour + particles_[1].colour;
  quadrants_[last_pair_] = 1 + quadrant;
  newest_.insert(newest_.begin(), quadrant);
  if (newest_.size() > 3) newest_.pop_back();
}

CollisionWorld::Question CollisionWorld::ask() { return rules_.easy ? ask_for_the_last() : ask_for_colours(); }

CollisionWorld::Question CollisionWorld::ask_for_colours() {
  int64_t pair = last_pair_;
  if (last_pair_ < 0 || random_.uniform() >= kAskForLast) pair = static_cast<int64_t>(random_.below(quadrants_.size()));
  return {{rules_.first_asked() + static_cast<int32_t>(pair / rules_.colours),
           rules_.first_asked() + static_cast<int32_t>(pair % rules_.colours)},
          static_cast<int32_t>(quadrants_[pair])};
}

CollisionWorld::Question CollisionWorld::ask_for_the_last() {
  const auto which = static_cast<int32_t>(random_.below(2));
  int64_t label = 0;
  if (which == 0 && !newest_.empty()) label = 1 + newest_[0];
  if (which == 1 && newest_.size() == 3) label = kThreeQuadrants + 16 * newest_[0] + 4 * newest_[1] + newest_[2];
  return {{rules_.first_asked() + which}, static_cast<int32_t>(label)};
}

}  // namespace lapse
