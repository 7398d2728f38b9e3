// Learning from what an agent did: advantage actor-critic (docs/equations.md, "Actor-critic").
#pragma once

#include <memory>

#include "lapse/train/config.h"
#include "lapse/train/objective.h"

namespace lapse {

/// The mean over a batch's steps of
///
///   - log pi(a_t) (R_t - V_t) + c_v (R_t - V_t)^2 - c_e (1 - d (1 - f)) H(pi_t)
///
/// where the first factor R_t - V_t, the advantage, has no gradient; d: the share of the run's updates that are done,
/// f: entropy_last. Batch::target: the actions a_t; Batch::more: "returns" R_t [B, K] float32. For a model with
/// agent_ends.
std::unique_ptr<Objective> actor_critic(const ActorCriticConfig& config);

/// The entropy's weight in it, c_e (1 - d (1 - f)), after this share d of the run's updates.
double entropy_weight(const ActorCriticConfig& config, double done);

/// R_t = r_t + gamma (1 - end_t) R_{t+1}, with R_K = `after`, the value of the state after the last step. Of one
/// environment: rewards, ends and returns [K].
void discounted_returns(const float* rewards, const bool* ends, int64_t steps, double after, double discount,
                        float* returns);

}  // namespace lapse
