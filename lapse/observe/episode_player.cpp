#include "lapse/observe/episode_player.h"

#include <ATen/core/grad_mode.h>

#include "lapse/core/error.h"
#include "lapse/model/policy.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {

using at::Tensor;

EpisodePlayer::EpisodePlayer(Transformer& model, const EnvironmentOptions& environment, uint64_t seed, bool greedy,
                             int64_t first)
    : model_(model),
      environment_(environment),
      seed_(seed),
      greedy_(greedy),
      world_(environment.make(1, seed)),
      state_{model.begin(1, Stored::projections), episode_draws(environment, seed, first).actions, {}, first} {
  begin_episode();
}

void EpisodePlayer::begin_episode() {
  const EpisodeDraws draws = episode_draws(environment_, seed_, state_.episodes);
  state_.actions = draws.actions;
  world_->begin(0, draws.world);
}

EpisodePlayer::State EpisodePlayer::save() const {
  State state = state_;
  state.world = world_->state(0);
  return state;
}

// The world's state has its draws' counter, not their key, which the episode's number gives.
void EpisodePlayer::restore(const State& state) {
  state_ = state;
  begin_episode();
  world_->set_state(0, state.world);
  state_.actions = state.actions;
}

Tensor EpisodePlayer::seen(std::vector<int32_t>& bits) const {
  const Tensor input = observed(*world_, 0, 1);
  const auto* words = input.const_data_ptr<int64_t>();
  bits.assign(words, words + input.numel());
  std::erase(bits, -1);
  return sent(input, model_.device());
}

Transformer::Result EpisodePlayer::read(const Tensor& input, BlockOptions how) {
  if (state_.begins) how.begins = at::ones({1, 1}, at::kBool);
  return model_.forward(input, state_.memory, how);
}

std::vector<LayerReport> EpisodePlayer::look(const State& state, BlockOptions how) {
  const at::NoGradGuard no_grad;
  const State now = save();
  std::vector<LayerReport> reports;
  try {
    restore(state);
    std::vector<int32_t> bits;
    reports = read(seen(bits), std::move(how)).reports;
  } catch (...) {
    restore(now);
    throw;
  }
  restore(now);
  return reports;
}

AgentStep EpisodePlayer::step(Observer& observer) {
  const at::NoGradGuard no_grad;
  AgentStep now;
  const Tensor input = seen(now.bits);
  const auto y = read(input, observer.wants());
  observer.token({-1, y.reports, state_.memory});

  const Tensor outputs = y.logits.flatten().to(at::kCPU).contiguous();
  if (!outputs.isfinite().all().item<bool>()) fail(kPolicyNotFinite);
  const Policy said(outputs);
  const int64_t actions = said.logits.numel();
  const Tensor policy = at::softmax(said.logits, 0).to(at::kDouble);
  now.policy.assign(policy.const_data_ptr<double>(), policy.const_data_ptr<double>() + actions);
  now.value = said.value.item<double>();
  const float* logits = outputs.const_data_ptr<float>();
  now.action = choose(logits, actions, state_.actions, greedy_);
  world_->step(0, 1, &now.action, &now.result);
  state_.begins = now.result.end;
  if (now.result.end) ++state_.episodes, begin_episode();
  return now;
}

}  // namespace lapse
