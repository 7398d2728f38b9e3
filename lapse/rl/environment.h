// Worlds that an agent acts in: what it sees, what it does, and what it earns. No torch here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lapse/core/config.h"
#include "lapse/core/random.h"

namespace lapse {

/// What agents in one kind of environment see and do.
struct EnvironmentShape {
  int64_t cells;                     ///< that are seen, row by row; the agent is in the middle one
  std::vector<std::string> words;    ///< what a cell may hold, several at once
  std::vector<std::string> actions;  ///< one word each; arrow keys act as left, right, up and down
  int64_t most_words;                ///< of one observation, over all cells
  std::string score;                 ///< what an episode is judged by, for instance "success"
  double least_score = 0;            ///< the smallest that an episode can have
  double best_score;                 ///< the largest that an episode can reach
  int64_t most_steps;                ///< that an episode can have

  /// Bits of an observation: word w in cell c is number c * words.size() + w.
  int64_t bits() const { return cells * static_cast<int64_t>(words.size()); }
};

/// What a step did.
struct StepResult {
  float reward = 0;
  bool end = false;  ///< of the episode; the next observation is the first of another
  float score = 0;   ///< of the ended episode
};

/// A batch of environments. Each draws from a random stream of its own: what happens in one depends on nothing but its
/// stream and its actions. Calls for different environments may come from different threads at the same time.
class Environments {
 public:
  virtual ~Environments() = default;

  virtual int64_t size() const = 0;
  virtual const EnvironmentShape& shape() const = 0;

  /// Environment i begins an episode, and draws from this stream from now on.
  virtual void begin(int64_t i, const Random& random) = 0;
  /// What the agents first ... first + count - 1 see: the numbers of the bits that are set, ascending, then -1:
  /// [count][most_words].
  virtual void observe(int64_t first, int64_t count, int32_t* bits) const = 0;
  /// They act; actions and results: [count]. An environment whose episode ends begins another at once. Allocates
  /// nothing.
  virtual void step(int64_t first, int64_t count, const int32_t* actions, StepResult* results) = 0;

  /// All of environment i, its random stream's counter included, and back. Error if it is no state of such an
  /// environment.
  virtual std::vector<int64_t> state(int64_t i) const = 0;
  virtual void set_state(int64_t i, const std::vector<int64_t>& state) = 0;

  /// A map of the world for people: lines of equal width, which a legend explains.
  virtual std::string draw(int64_t i) const = 0;
  virtual std::string legend() const = 0;
};

/// A kind of environment, and its section of the configuration file.
class EnvironmentOptions {
 public:
  virtual ~EnvironmentOptions() = default;
  virtual std::string name() const = 0;
  virtual Fields fields() = 0;
  /// Error if the options contradict each other.
  virtual void check() const {}
  virtual EnvironmentShape shape() const = 0;
  /// `count` environments; the i-th draws from Random(seed, "NAME.i"), and has begun.
  virtual std::unique_ptr<Environments> make(int64_t count, uint64_t seed) const = 0;
};

}  // namespace lapse
