// The eager reference of an agent that acts and learns: the actor-critic of lapse/train/control.h as a PyTorch user
// writes it, with all environments in one batch and memory in dense tensors. Environments and draws are the library's.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "bench/eager_model.h"
#include "lapse/train/learner.h"

namespace lapse::bench {

class EagerAgents {
 public:
  /// Goes on from where the library is: its weights, moments and memory, and the state of its feed (Feed::tensors).
  /// `part`: environments that learn at a time, gradients added up, a divisor of the batch or at least all of it. With
  /// all at once large tensors leave the caches: Portal takes 4 GB rather than 0.5, and three times as long.
  EagerAgents(const Config& config, Learner& learner, const Columns& feed, int64_t part = kPart);
  static constexpr int64_t kPart = 16;

  struct Played {
    at::Tensor seen;    ///< [B, K + 1, W] int64: bits that are set, and as many times as needed the number of all bits
    at::Tensor begins;  ///< [B, K + 1] bool: an episode begins here
    at::Tensor actions, returns;  ///< [B, K]
  };
  Played act();                       ///< one block of steps
  double learn(const Played& block);  ///< one update; its loss

  double rows() const;  ///< that the memory holds of an environment, the mean over layers and environments
  const EagerWeights& weights() const { return weights_; }

 private:
  /// A layer's inputs at the last n timesteps: hidden [B, n, d], and which of them can still be read: alive [B, n].
  struct Memory {
    at::Tensor hidden, alive;
  };
  /// A layer's keys and values while it acts: of the memory's n rows and of the steps since.
  struct Cache {
    at::Tensor key, value;  ///< [B, H, n + K + 1, D]
    at::Tensor span;        ///< [B, n + K + 1]
    at::Tensor weights;     ///< W_q, W_k, W_v, one below the other
    int64_t n = 0;
  };
  struct Constants;  // of a block

  Cache make_cache(size_t l) const;
  at::Tensor act(size_t l, Cache& cache, const at::Tensor& h, int64_t t, const Constants& constants) const;
  at::Tensor observe(int64_t t, Played& block, std::vector<Cache>& caches, const Constants& constants);
  at::Tensor embed(const at::Tensor& seen) const;  ///< [..., W]: [..., d]
  at::Tensor loss(const Played& part, std::vector<Memory>& memory) const;
  at::Tensor forward(size_t l, const at::Tensor& h, const at::Tensor& first, Memory& memory, at::Tensor& cost) const;

  Config config_;
  double max_span_, ramp_, span_loss_;
  int64_t batch_, part_, block_, heads_;
  EagerWeights weights_;
  EagerOptimiser optimiser_;
  std::vector<Memory> memory_;
  std::unique_ptr<Environments> environments_;
  std::vector<Random> draws_;
  at::Tensor begins_;  // [B] bool: the next observation is an episode's first
};

}  // namespace lapse::bench
