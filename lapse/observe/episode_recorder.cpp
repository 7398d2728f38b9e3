#include "lapse/observe/episode_recorder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/model/policy.h"

namespace lapse {

using at::Tensor;

EpisodeRecorder::EpisodeRecorder(Transformer& model, const EnvironmentOptions& environment, uint64_t seed, bool greedy)
    : model_(model),
      environment_(environment),
      seed_(seed),
      greedy_(greedy),
      world_(environment.make(1, seed)),
      draws_(episode_draws(environment, seed, 0)),
      memory_(model.begin(1, Stored::projections)),
      rows_(model, record) {
  world_->begin(0, draws_.world);
}

const AgentStep& EpisodeRecorder::step() {
  const at::NoGradGuard no_grad;
  if (begins_) record.begins.push_back(std::ssize(record.steps));
  AgentStep now;
  now.bits.resize(world_->shape().most_words);
  world_->observe(0, 1, now.bits.data());
  const Tensor input = at::empty({1, 1, std::ssize(now.bits)}, at::kLong);
  std::ranges::copy(now.bits, input.mutable_data_ptr<int64_t>());
  std::erase(now.bits, -1);
  BlockOptions how{.observe = true};
  if (begins_) how.begins = at::ones({1, 1}, at::TensorOptions(at::kBool).device(model_.device()));
  const auto y = model_.forward(input.to(model_.device()), memory_, how);
  rows_.add(y.reports, memory_);

  const Tensor outputs = y.logits.flatten().to(at::kCPU).contiguous();
  if (!outputs.isfinite().all().item<bool>())
    fail("the policy is not finite: the model's weights are too large, as after a run that diverged");
  const Policy said(outputs);
  const int64_t actions = said.logits.numel();
  const Tensor policy = at::softmax(said.logits, 0).to(at::kDouble);
  now.policy.assign(policy.const_data_ptr<double>(), policy.const_data_ptr<double>() + actions);
  now.value = said.value.item<double>();
  const float* logits = outputs.const_data_ptr<float>();
  now.action = greedy_ ? likeliest(logits, actions) : choose(logits, actions, draws_.actions);
  world_->step(0, 1, &now.action, &now.result);
  begins_ = now.result.end;
  if (now.result.end) {
    finish();
    draws_ = episode_draws(environment_, seed_, ++episodes);
    world_->begin(0, draws_.world);
  }
  return record.steps.emplace_back(std::move(now));
}

EpisodesRecord record_episodes(Transformer& model, const EnvironmentOptions& environment,
                               const EpisodesRecorderOptions& options) {
  EpisodeRecorder recorder(model, environment, options.seed, options.greedy);
  const auto& steps = recorder.record.steps;
  const auto full = [&] {
    return recorder.episodes == options.episodes || (options.steps > 0 && std::ssize(steps) == options.steps);
  };
  while (!full() && !recorder.record.stopped) {
    recorder.step();
    if (options.progress) options.progress(std::ssize(steps));
    recorder.record.stopped = interrupted();
  }
  recorder.finish();
  return std::move(recorder.record);
}

}  // namespace lapse
