#include "lapse/train/agent.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/memory/samples.h"
#include "lapse/model/policy.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"
#include "lapse/train/actor_critic.h"

namespace lapse {

using at::Tensor;

namespace {

// A thread acts with so many agents at a time: what a step touches then stays in its core's cache.
constexpr int64_t kGroup = 128;
// So many groups at least, for as many threads, but none of fewer agents: products of few rows are slower by row.
constexpr int64_t kShares = 8, kLeast = 32;

}  // namespace

int64_t acting_groups(int64_t each, int64_t parts) {
  return std::max({int64_t{1}, (each + kGroup - 1) / kGroup, std::min((kShares + parts - 1) / parts, each / kLeast)});
}

ModelMemory acting_memory(const Transformer& model, const ModelMemory& memory, int64_t first, int64_t streams,
                          int64_t steps) {
  ModelMemory some{{}, memory.clock.narrow(0, first, streams).clone(), memory.stored};
  for (const auto& table : memory.layers) some.layers.push_back(samples_of(table, first, streams));
  ModelMemory acting = model.projected(some);
  acting.reserve(steps);
  return acting;
}

Tensor observed(const Environments& environments, int64_t first, int64_t count) {
  std::vector<int32_t> words(count * environments.shape().most_words);
  environments.observe(first, count, words.data());
  const Tensor all = at::empty({count, 1, environments.shape().most_words}, at::kLong);
  std::ranges::copy(words, all.mutable_data_ptr<int64_t>());
  return all;
}

int32_t choose(const float* logits, int64_t actions, Random& random, bool greedy) {
  const float* best = std::max_element(logits, logits + actions);
  if (greedy) return static_cast<int32_t>(best - logits);
  const float largest = *best;
  double sum = 0;
  for (int64_t a = 0; a < actions; ++a) sum += std::exp(static_cast<double>(logits[a] - largest));
  double left = random.uniform() * sum;
  for (int64_t a = 0; a + 1 < actions; ++a)
    if ((left -= std::exp(static_cast<double>(logits[a] - largest))) < 0) return static_cast<int32_t>(a);
  return static_cast<int32_t>(actions - 1);
}

/// What all agents did in a block of steps, [B, K] each; every thread writes its own agents' rows.
struct Agents::Block {
  Block(int64_t agents, int64_t steps, int64_t words, double discount)
      : steps(steps),
        words(words),
        discount(discount),
        seen(at::empty({agents, steps + 1, words}, at::kLong)),
        begins(at::zeros({agents, steps + 1}, at::kBool)),
        actions(at::empty({agents, steps}, at::kLong)),
        returns(at::empty({agents, steps}, at::kFloat)),
        rewards(agents * steps),
        ends(std::make_unique<bool[]>(agents * steps)),
        ended(agents) {}

  int64_t steps, words;
  double discount;
  Tensor seen, begins, actions, returns;  // seen and begins also of the state after the last step
  std::vector<float> rewards;
  std::unique_ptr<bool[]> ends;
  std::vector<EpisodeSums> ended;  // of each agent
};

Agents::Agents(const EnvironmentOptions& options, int64_t environments, uint64_t seed, Share own)
    : environments_(options.make(environments, seed)), own_(own) {
  for (int64_t i = 0; i < environments; ++i) agents_.push_back({Random(seed, fmt::format("action.{}", i))});
}

Agents::Played Agents::play(Transformer& model, const std::vector<ModelMemory>& memory, int64_t steps,
                            double discount) {
  Block block(own_.count, steps, environments_->shape().most_words, discount);
  const auto parts = std::ssize(memory), each = own_.count / parts;
  const int64_t groups = acting_groups(each, parts * (size() / own_.count));
  at::parallel_for(0, parts * groups, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t g = i % groups, first = each * g / groups, count = each * (g + 1) / groups - first;
      play(model, acting_memory(model, memory[i / groups], first, count, steps + 1), i / groups * each + first, count,
           block);
    }
  });
  Played played{Batch(block.seen.narrow(1, 0, steps), block.actions), {}};
  played.batch.begins = block.begins.narrow(1, 0, steps);
  played.batch.more["returns"] = block.returns;
  for (const auto& ended : block.ended) played.episodes += ended;
  return played;
}

void Agents::play(Transformer& model, ModelMemory memory, int64_t first, int64_t count, Block& block) {
  const int64_t K = block.steps, world = own_.first + first;
  const auto agents = agents_.begin() + world;
  std::vector<int32_t> actions(count);
  std::vector<StepResult> results(count);
  auto* begins = block.begins.mutable_data_ptr<bool>();
  // What the model says of the present states: [count, actions + 1].
  const auto read = [&](int64_t t) {
    const Tensor seen = observed(*environments_, world, count);
    block.seen.narrow(0, first, count).narrow(1, t, 1).copy_(seen);
    bool any = false;
    for (int64_t i = 0; i < count; ++i) any |= begins[(first + i) * (K + 1) + t] = agents[i].begins;
    BlockOptions how;
    if (any) how.begins = block.begins.narrow(0, first, count).narrow(1, t, 1);
    return model.forward(sent(seen, model.device()), memory, how).logits.squeeze(1).to(at::kCPU).contiguous();
  };
  for (int64_t t = 0; t < K; ++t) {
    const Tensor y = read(t);
    for (int64_t i = 0; i < count; ++i)
      actions[i] = choose(y.const_data_ptr<float>() + i * y.size(1), actions_of(y), agents[i].random);
    environments_->step(world, count, actions.data(), results.data());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = (first + i) * K + t;
      const StepResult& result = results[i];
      Agent& agent = agents[i];
      block.actions.mutable_data_ptr<int64_t>()[at] = actions[i];
      block.rewards[at] = result.reward, block.ends[at] = agent.begins = result.end;
      agent.reward += result.reward, ++agent.steps;
      if (!result.end) continue;
      block.ended[first + i] += {1, agent.reward, result.score, static_cast<double>(agent.steps)};
      agent.reward = 0, agent.steps = 0;
    }
  }
  const Tensor after = Policy(read(K)).value.contiguous();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (first + i) * K;
    discounted_returns(block.rewards.data() + at, block.ends.get() + at, K, after.const_data_ptr<float>()[i],
                       block.discount, block.returns.mutable_data_ptr<float>() + at);
  }
}

Columns Agents::state() const {
  std::vector<int64_t> worlds, agents;
  std::vector<double> rewards;
  for (int64_t i = own_.first; i < own_.first + own_.count; ++i) {
    const auto world = environments_->state(i);
    worlds.insert(worlds.end(), world.begin(), world.end());
    const Agent& agent = agents_[i];
    agents.insert(agents.end(), {static_cast<int64_t>(agent.random.counter()), agent.begins, agent.steps});
    rewards.push_back(agent.reward);
  }
  return {{"worlds", at::tensor(worlds, at::kLong).view({own_.count, -1})},
          {"agents", at::tensor(agents, at::kLong).view({own_.count, -1})},
          {"rewards", at::tensor(rewards, at::kDouble)}};
}

void Agents::set_state(const Columns& state) {
  const Columns own = this->state();
  for (const auto& [name, values] : own) {
    const auto found = state.find(name);
    if (found == state.end() || found->second.dim() != values.dim() || found->second.size(0) != size() ||
        found->second.sizes().slice(1) != values.sizes().slice(1) ||
        found->second.scalar_type() != values.scalar_type())
      fail(fmt::format("'feed.{}' is not of {} environments as the configuration has them", name, size()));
  }
  for (const auto& [name, values] : state)
    if (!own.contains(name)) fail(fmt::format("there is no place in the run for its tensor 'feed.{}'", name));
  const Tensor worlds = state.at("worlds").contiguous(), agents = state.at("agents").contiguous(),
               rewards = state.at("rewards").contiguous();
  for (int64_t i = 0; i < size(); ++i) {
    const auto* world = worlds.const_data_ptr<int64_t>() + i * worlds.size(1);
    environments_->set_state(i, {world, world + worlds.size(1)});
    const auto* saved = agents.const_data_ptr<int64_t>() + i * agents.size(1);
    agents_[i].random.set_counter(static_cast<uint64_t>(saved[0]));
    agents_[i].begins = saved[1] != 0, agents_[i].steps = saved[2];
    agents_[i].reward = rewards.const_data_ptr<double>()[i];
  }
}

}  // namespace lapse
