// Counter-based random streams: a stream is a key, its state one counter, so that a run resumes to the bit.
#pragma once

#include <cstdint>
#include <string_view>

namespace lapse {

/// A bijection of 64-bit words whose outputs for 0, 1, 2, ... pass as independent (SplitMix64's finaliser).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// The stream named `name` of a run's seed. Streams of different names or seeds share nothing; equal ones are equal on
/// every machine. Copyable; `counter` is the whole state.
class Random {
 public:
  Random(uint64_t seed, std::string_view name);

  uint64_t next();   ///< 64 uniform bits
  double uniform();  ///< in [0, 1)
  double normal();   ///< mean 0, variance 1; takes two words; its last bit may differ with the machine's log and cos
  uint64_t below(uint64_t n);  ///< uniform in 0 ... n-1, without modulo bias; n >= 1; takes one word, rarely more

  uint64_t counter() const { return counter_; }
  void set_counter(uint64_t counter) { counter_ = counter; }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace lapse
