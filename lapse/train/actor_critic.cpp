#include "lapse/train/actor_critic.h"

#include "lapse/model/policy.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/total.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

class ActorCritic : public Objective {
 public:
  explicit ActorCritic(const ActorCriticConfig& config) : config_(config) {}

  PartLoss read(Transformer& model, ModelMemory& memory, const Batch& part, const PartOf& of,
                const BlockOptions& options, const BlockDraws& draws) const override {
    BlockOptions how = options;
    how.begins = part.begins;
    auto y = model.forward(part.input, memory, how, draws);
    const Policy policy(y.logits);
    const Tensor log_pi = at::log_softmax(policy.logits, -1);
    const Tensor error = part.more.at("returns") - policy.value;
    const Tensor actions = sent(part.target, log_pi.device());
    const Tensor chosen = log_pi.gather(-1, actions.unsqueeze(-1)).squeeze(-1);
    const Tensor policy_loss = -total(chosen * error.detach()), value_loss = total(error.square());
    const Tensor entropy = -total(log_pi.exp() * log_pi);
    const Tensor loss = (policy_loss + config_.value_loss * value_loss - entropy_weight(config_, of.done) * entropy) /
                        static_cast<double>(part.target.numel());
    return {loss + y.cost,
            loss,
            y.cost,
            {{"policy_loss", policy_loss}, {"value_loss", value_loss}, {"entropy", entropy}},
            std::move(y.reports)};
  }

 private:
  ActorCriticConfig config_;
};

}  // namespace

std::unique_ptr<Objective> actor_critic(const ActorCriticConfig& config) {
  return std::make_unique<ActorCritic>(config);
}

double entropy_weight(const ActorCriticConfig& config, double done) {
  return config.entropy * (1 - done * (1 - config.entropy_last));
}

void discounted_returns(const float* rewards, const bool* ends, int64_t steps, double after, double discount,
                        float* returns) {
  for (int64_t t = steps - 1; t >= 0; --t) {
    after = rewards[t] + (ends[t] ? 0 : discount * after);
    returns[t] = static_cast<float>(after);
  }
}

}  // namespace lapse
