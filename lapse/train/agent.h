// An agent that acts: a model reads what environments show, one step at a time, and its policy chooses the actions.
#pragma once

#include <memory>
#include <vector>

#include "lapse/core/group.h"
#include "lapse/model/transformer.h"
#include "lapse/rl/environment.h"
#include "lapse/train/batch.h"

namespace lapse {

/// What episodes that ended came to.
struct EpisodeSums {
  double episodes = 0, reward = 0, score = 0, steps = 0;

  EpisodeSums& operator+=(const EpisodeSums& other) {
    episodes += other.episodes, reward += other.reward, score += other.score, steps += other.steps;
    return *this;
  }
};

/// Into how many groups the `each` agents of a part are cut, which threads share; parts: of all ranks. It must not
/// depend on how many threads or ranks there are: products of other numbers of rows may round otherwise.
int64_t acting_groups(int64_t each, int64_t parts);

/// Streams `first` ... `first + streams - 1` of a memory of inputs, to be read with the model's present weights: as
/// projections, with room for `steps` more rows each.
ModelMemory acting_memory(const Transformer& model, const ModelMemory& memory, int64_t first, int64_t streams,
                          int64_t steps);

/// What environments first ... first + count - 1 show, as a model reads it: [count, 1, words] int64, -1 for no word.
at::Tensor observed(const Environments& environments, int64_t first, int64_t count);

inline constexpr const char* kPolicyNotFinite =
    "the policy is not finite: the model's weights are too large, as after a run that diverged";
/// An action for logits [actions]: drawn from softmax(logits), or the likeliest, which draws nothing.
int32_t choose(const float* logits, int64_t actions, Random& random, bool greedy = false);

/// An agent in each of a batch of environments, which it acts in without end.
class Agents {
 public:
  /// `environments` of them, as Environments::make; agent i draws its actions from Random(seed, "action.i"). Those of
  /// `own` act here, the others on other ranks.
  Agents(const EnvironmentOptions& options, int64_t environments, uint64_t seed, Share own);
  Agents(const EnvironmentOptions& options, int64_t environments, uint64_t seed)
      : Agents(options, environments, seed, {0, environments}) {}

  struct Played {
    Batch batch;           ///< of `steps` steps of the own agents, for actor_critic
    EpisodeSums episodes;  ///< those that ended
  };
  /// Acts for so many steps. Part p of the memory, of inputs, is of the next own.count / parts environments; it stays
  /// as it is: what was played is to be read with it by Learner::update. Environments are divided among threads.
  Played play(Transformer& model, const std::vector<ModelMemory>& memory, int64_t steps, double discount);

  int64_t size() const { return environments_->size(); }

  /// Everything that a later `play` depends on, of the own agents. set_state, of all agents: Error if it is of another
  /// environment or batch.
  Columns state() const;
  void set_state(const Columns& state);

 private:
  struct Agent {
    Random random;
    bool begins = true;  ///< the next observation is an episode's first
    double reward = 0;   ///< of the episode so far
    int64_t steps = 0;
  };
  struct Block;
  void play(Transformer& model, ModelMemory memory, int64_t first, int64_t count, Block& block);

  std::unique_ptr<Environments> environments_;  // of all ranks
  Share own_;
  std::vector<Agent> agents_;
};

}  // namespace lapse
