#include "lapse/core/random.h"

#include <cassert>
#include <cmath>
#include <numbers>

namespace lapse {

Random::Random(uint64_t seed, std::string_view name) : key_(mix64(seed)) {
  for (unsigned char byte : name) key_ = mix64(key_ ^ byte);
  key_ = mix64(key_ ^ 256);  // ends the name: for an empty one seed and counter would be interchangeable
}

// The counter is mixed before it is combined with the key: with a plain sum, two streams with neighbouring keys would
// be shifted copies of each other.
uint64_t Random::next() { return mix64(key_ ^ mix64(counter_++)); }

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

// Box-Muller without its second value: caching it would make it part of the state.
double Random::normal() {
  double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));  // 1 - uniform() is in (0, 1]
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

uint64_t Random::below(uint64_t n) {
  assert(n >= 1);
  const uint64_t surplus = (0 - n) % n;  // 2^64 mod n: dropping so many words leaves a multiple of n
  uint64_t word = next();
  while (word < surplus) word = next();
  return word % n;
}

}  // namespace lapse
