#include "bench/eager_agents.h"

#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/eager.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/train/agent.h"

namespace lapse::bench {
namespace {

using at::Tensor;

constexpr double kHidden = -1e8;  // a logit whose exponential is 0
constexpr double kDead = -1e9;    // a span with which no query reads a row

double method_setting(Config& config, const std::string& name) {
  for (const Field& field : config.method().fields()) {
    if (field.name != name) continue;
    if (const auto* whole = std::get_if<int64_t*>(&field.value)) return static_cast<double>(**whole);
    return *std::get<double*>(field.value);
  }
  fail("the method has no setting " + name);
}

std::vector<Tensor> tensors_of(const EagerWeights& weights) {
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : weights.all) all.push_back(parameter);
  return all;
}

/// R_t = r_t + gamma (1 - end_t) R_{t+1} of rewards and ends [K, B]: [B, K].
Tensor discounted(const Tensor& rewards, const Tensor& ends, Tensor after, double discount) {
  const Tensor kept = (1 - ends) * discount;
  std::vector<Tensor> returns(rewards.size(0));
  for (int64_t t = rewards.size(0) - 1; t >= 0; --t) returns[t] = after = at::addcmul(rewards[t], kept[t], after);
  return at::stack(returns, 1);
}

}  // namespace

struct EagerAgents::Constants {
  Tensor by_age;  ///< [D, P]: positions of ages P ... 1
  Tensor ages;    ///< ..., 2, 1
};

EagerAgents::EagerAgents(const Config& config, Learner& learner, const Columns& feed, int64_t part)
    : config_(config),
      max_span_(method_setting(config_, "max_span")),
      ramp_(method_setting(config_, "ramp")),
      span_loss_(method_setting(config_, "loss")),
      batch_(config.train.batch),
      part_(std::min(part, batch_)),
      block_(config.train.block),
      heads_(config.model.heads),
      weights_(learner.model().parameters(), config.model.layers),
      optimiser_(config.optimiser, tensors_of(weights_)),
      environments_(config.environment()->make(batch_, config.train.seed)),
      begins_(at::empty({batch_}, at::kBool)) {
  const Optimiser& moments = learner.optimiser();
  const bool adam = config.optimiser.name == "adam";
  for (size_t i = 0; i < weights_.all.size(); ++i) {
    const auto& name = weights_.all[i].first;
    optimiser_.second[i] = EagerWeights::converted(name, moments.slots().at(adam ? "exp_avg_sq" : "square_avg")[i]);
    if (adam) optimiser_.first[i] = EagerWeights::converted(name, moments.slots().at("exp_avg")[i]);
  }
  optimiser_.steps = moments.steps();

  if (batch_ % part_ != 0)
    fail(fmt::format("{} environments cannot learn {} at a time: no whole number of parts", batch_, part_));
  const int64_t d = config.model.width, each = batch_ / std::ssize(learner.memory());
  for (int64_t l = 0; l < config.model.layers; ++l) {
    std::vector<Tensor> samples, ages, hidden;  // of all parts' rows
    for (const ModelMemory& part : learner.memory()) {
      const MemoryTable& table = part.layers[l];
      if (table.rows() == 0) continue;
      const int64_t first = (&part - learner.memory().data()) * each;
      samples.push_back(table.sample() + first), hidden.push_back(table.column("hidden"));
      ages.push_back(part.clock.index_select(0, table.sample()) - table.time());
    }
    int64_t n = 0;
    for (const Tensor& age : ages) n = std::max(n, age.max().item<int64_t>());
    Memory dense{at::zeros({batch_, n, d}), at::zeros({batch_, n}, at::kBool)};
    for (size_t i = 0; i < ages.size(); ++i) {
      dense.hidden.index_put_({samples[i], n - ages[i]}, hidden[i]);
      dense.alive.index_put_({samples[i], n - ages[i]}, at::ones({}, at::kBool));
    }
    memory_.push_back(dense);
  }

  const Tensor worlds = feed.at("worlds").contiguous(), agents = feed.at("agents").contiguous();
  for (int64_t i = 0; i < batch_; ++i) {
    const auto* world = worlds.const_data_ptr<int64_t>() + i * worlds.size(1);
    environments_->set_state(i, {world, world + worlds.size(1)});
    const auto* agent = agents.const_data_ptr<int64_t>() + i * agents.size(1);  // counter, begins, steps
    draws_.emplace_back(config.train.seed, fmt::format("action.{}", i));
    draws_.back().set_counter(static_cast<uint64_t>(agent[0]));
    begins_.mutable_data_ptr<bool>()[i] = agent[1] != 0;
  }
}

double EagerAgents::rows() const {
  double sum = 0;
  for (const Memory& memory : memory_) sum += memory.alive.sum().item<double>();
  return sum / static_cast<double>(batch_ * std::ssize(memory_));
}

Tensor EagerAgents::embed(const Tensor& seen) const {
  const int64_t W = seen.size(-1), bits = weights_.embedding.size(0) - 1;
  const Tensor flat = seen.reshape({-1});
  const Tensor sums = std::get<0>(at::embedding_bag(weights_.embedding, flat, at::arange(0, flat.size(0), W), false,
                                                    /*mode: sum*/ 0, false, {}, false, bits));
  auto shape = seen.sizes().vec();
  shape.back() = weights_.embedding.size(1);
  return sums.view(shape);
}

EagerAgents::Cache EagerAgents::make_cache(size_t l) const {
  const EagerLayer& layer = weights_.layers[l];
  const Memory& memory = memory_[l];
  const int64_t B = batch_, n = memory.hidden.size(1), H = heads_, D = layer.key.size(0) / H, all = n + block_ + 1;
  Cache cache{at::empty({B, H, all, D}), at::empty({B, H, all, D}), at::empty({B, all}),
              lapse::cat({layer.query, layer.key, layer.value}), n};
  if (n == 0) return cache;
  cache.key.narrow(2, 0, n).copy_(at::linear(memory.hidden, layer.key).view({B, n, H, D}).transpose(1, 2));
  cache.value.narrow(2, 0, n).copy_(at::linear(memory.hidden, layer.value).view({B, n, H, D}).transpose(1, 2));
  const Tensor span = layer.spans(memory.hidden, max_span_).masked_fill_(memory.alive.logical_not(), kDead);
  cache.span.narrow(1, 0, n).copy_(span);
  return cache;
}

Tensor EagerAgents::act(size_t l, Cache& cache, const Tensor& h, int64_t t, const Constants& constants) const {
  const EagerLayer& layer = weights_.layers[l];
  const int64_t B = batch_, H = heads_, D = cache.key.size(3), P = constants.by_age.size(1);
  const int64_t now = cache.n + t, n = std::min(now, static_cast<int64_t>(max_span_ + ramp_)), near = std::min(n, P);
  const Tensor made = at::linear(h, cache.weights).view({B, 3, H, D});
  cache.key.select(2, now).copy_(made.select(1, 1));
  cache.value.select(2, now).copy_(made.select(1, 2));
  cache.span.select(1, now).copy_(layer.spans(h, max_span_));
  if (n == 0) return layer.finish(h, at::zeros_like(h));

  const Tensor q = (made.select(1, 0) / std::sqrt(static_cast<double>(D))).unsqueeze(2);  // [B, H, 1, D]
  Tensor logits = at::matmul(q, cache.key.narrow(2, now - n, n).transpose(2, 3));
  logits.narrow(3, n - near, near).add_(at::matmul(q, constants.by_age.narrow(1, P - near, near)));
  const Tensor ages = constants.ages.narrow(0, constants.ages.size(0) - n, n);
  const Tensor m = (cache.span.narrow(1, now - n, n) - ages).div_(ramp_).add_(1).clamp_(0, 1).view({B, 1, 1, n});
  const Tensor a = at::softmax(logits.masked_fill_(m <= 0, kHidden), 3).mul_(m);
  const Tensor read = at::matmul(a.div_(a.sum(3, true).add_(1e-8)), cache.value.narrow(2, now - n, n));
  return layer.finish(h, read.view({B, H * D}));
}

Tensor EagerAgents::observe(int64_t t, Played& block, std::vector<Cache>& caches, const Constants& constants) {
  const int64_t W = block.seen.size(2), bits = weights_.embedding.size(0) - 1;
  at::parallel_for(0, batch_, 64, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> numbers((end - begin) * W);
    environments_->observe(begin, end - begin, numbers.data());
    for (int64_t i = begin; i < end; ++i)
      std::transform(numbers.begin() + (i - begin) * W, numbers.begin() + (i - begin + 1) * W,
                     block.seen.mutable_data_ptr<int64_t>() + (i * (block_ + 1) + t) * W,
                     [&](int32_t bit) -> int64_t { return bit < 0 ? bits : bit; });
  });
  block.begins.select(1, t).copy_(begins_);
  if (begins_.any().item<bool>())
    for (Cache& cache : caches) cache.span.narrow(1, 0, cache.n + t).masked_fill_(begins_.unsqueeze(1), kDead);
  Tensor h = embed(block.seen.select(1, t));
  for (size_t l = 0; l < caches.size(); ++l) h = act(l, caches[l], h, t, constants);
  return at::linear(h, weights_.output_weight, weights_.output_bias);
}

EagerAgents::Played EagerAgents::act() {
  const int64_t B = batch_, K = block_, W = environments_->shape().most_words;
  Played block{at::empty({B, K + 1, W}, at::kLong), at::empty({B, K + 1}, at::kBool), at::empty({B, K}, at::kLong),
               at::empty({B, K})};
  const c10::InferenceMode inference;
  std::vector<Cache> caches;
  for (size_t l = 0; l < memory_.size(); ++l) caches.push_back(make_cache(l));
  const Constants constants{weights_.position.flip(0).t().contiguous(),
                            at::arange(static_cast<int64_t>(max_span_ + ramp_), 0, -1, at::kFloat)};
  const Tensor rewards = at::empty({K, B}), ends = at::empty({K, B});
  for (int64_t t = 0; t < K; ++t) {
    const Tensor y = observe(t, block, caches, constants);
    const int64_t A = y.size(1) - 1;
    at::parallel_for(0, B, 64, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> actions;
      std::vector<StepResult> results(end - begin);
      for (int64_t i = begin; i < end; ++i) {
        actions.push_back(choose(y.const_data_ptr<float>() + i * (A + 1), A, draws_[i]));
        block.actions.mutable_data_ptr<int64_t>()[i * K + t] = actions.back();
      }
      environments_->step(begin, end - begin, actions.data(), results.data());
      for (int64_t i = begin; i < end; ++i) {
        const StepResult& result = results[i - begin];
        rewards.mutable_data_ptr<float>()[t * B + i] = result.reward;
        ends.mutable_data_ptr<float>()[t * B + i] = begins_.mutable_data_ptr<bool>()[i] = result.end;
      }
    });
  }
  const Tensor after = observe(K, block, caches, constants);
  block.returns.copy_(discounted(rewards, ends, after.select(1, after.size(1) - 1), config_.actor_critic.discount));
  return block;
}

Tensor EagerAgents::forward(size_t l, const Tensor& h, const Tensor& first, Memory& memory, Tensor& cost) const {
  const EagerLayer& layer = weights_.layers[l];
  const int64_t B = h.size(0), K = h.size(1), H = heads_, D = layer.key.size(0) / H, old = memory.hidden.size(1);
  const Tensor all = lapse::cat({memory.hidden, h}, 1),
               alive = lapse::cat({memory.alive, at::ones({B, K}, at::kBool)}, 1);
  const int64_t n = old + K;
  const Tensor span = layer.spans(all, max_span_).masked_fill(alive.logical_not(), kDead), begin = first + old;
  const auto y =
      eager_attention({at::linear(h, layer.query).view({B, K, H, D}), at::linear(all, layer.key).view({B, n, H, D}),
                       at::linear(all, layer.value).view({B, n, H, D}), span, weights_.position, ramp_, begin});
  cost = cost + y.ramp_sum.mean() * (span_loss_ / (ramp_ * static_cast<double>(K)));
  const Tensor left = span.detach() - at::arange(n, 0, -1);  // at the next timestep
  const Tensor readable = at::logical_and(left / ramp_ + 1 > 0, at::arange(n) >= begin.narrow(1, K - 1, 1));
  memory = {all.detach(), readable};
  return layer.finish(h, y.out.reshape({B, K, H * D}));
}

Tensor EagerAgents::loss(const Played& part, std::vector<Memory>& memory) const {
  const int64_t K = block_;
  // The first row of the block's own, negative: of the memory's, that each query may read.
  const Tensor first = std::get<0>(
      at::where(part.begins.narrow(1, 0, K), at::arange(K), at::full({}, -(int64_t{1} << 30), at::kLong)).cummax(1));
  Tensor h = embed(part.seen.narrow(1, 0, K)), cost = at::zeros({});
  for (size_t l = 0; l < memory.size(); ++l) h = forward(l, h, first, memory[l], cost);
  const Tensor y = at::linear(h, weights_.output_weight, weights_.output_bias);
  const int64_t A = y.size(2) - 1;
  const Tensor log_pi = at::log_softmax(y.narrow(2, 0, A), 2), error = part.returns - y.select(2, A);
  const Tensor chosen = log_pi.gather(2, part.actions.unsqueeze(2)).squeeze(2);
  const Tensor entropy = -(log_pi.exp() * log_pi).sum(2);
  const Tensor task = (-chosen * error.detach() + config_.actor_critic.value_loss * error.square() -
                       config_.actor_critic.entropy * entropy)
                          .mean();
  ((task + cost) * (static_cast<double>(h.size(0)) / static_cast<double>(batch_))).backward();
  return task.detach();
}

double EagerAgents::learn(const Played& block) {
  optimiser_.zero_gradients();
  const int64_t size = part_, parts = batch_ / size;
  double loss = 0;
  std::vector<std::vector<Tensor>> hidden(memory_.size()), alive(memory_.size());
  for (int64_t p = 0; p < parts; ++p) {
    const auto some = [&](const Tensor& x) { return x.narrow(0, p * size, size); };
    std::vector<Memory> memory;
    for (const Memory& all : memory_) memory.push_back({some(all.hidden), some(all.alive)});
    const Tensor task =
        this->loss({some(block.seen), some(block.begins), some(block.actions), some(block.returns)}, memory);
    loss += task.item<double>() / static_cast<double>(parts);
    for (size_t l = 0; l < memory.size(); ++l)
      hidden[l].push_back(memory[l].hidden), alive[l].push_back(memory[l].alive);
  }
  optimiser_.clip_and_step();
  for (size_t l = 0; l < memory_.size(); ++l) {  // without the oldest rows that nobody can read
    const Tensor all = lapse::cat(alive[l]), any = all.any(0);
    const int64_t n = any.size(0), gone = any.any().item<bool>() ? any.to(at::kByte).argmax().item<int64_t>() : n;
    for (Tensor& part : hidden[l]) part = part.narrow(1, gone, n - gone);
    memory_[l] = {lapse::cat(hidden[l]), all.narrow(1, gone, n - gone)};
  }
  return loss;
}

}  // namespace lapse::bench
