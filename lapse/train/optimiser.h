// Optimisers over a model's parameters, with a state that checkpoints can hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "lapse/core/group.h"
#include "lapse/forgetting/method.h"
#include "lapse/train/config.h"

namespace lapse {

/// The rate of update n = 1, 2, ..., total: linear warm-up, then constant or a half cosine to 0.
double learning_rate(const OptimiserConfig& config, int64_t n, int64_t total);

/// Names of what it keeps for each parameter, each as large as that.
std::vector<std::string> slots_of(const OptimiserConfig& config);

class Optimiser {
 public:
  Optimiser(const OptimiserConfig& config, NamedTensors parameters);

  void zero_gradients();
  /// Replaces the gradients by their sums over the ranks, in the ranks' order.
  void sum_gradients(Group& group);
  /// The global L2 norm of all gradients: a scalar.
  at::Tensor gradient_norm() const;
  /// Scales all gradients so that this norm of theirs is at most config.clip (0: leaves them).
  void clip(double norm);
  void step(double rate);

  /// Moments by slot ("exp_avg", ...) and parameter, in the parameters' order; and how many steps they have seen.
  std::map<std::string, std::vector<at::Tensor>>& slots() { return slots_; }
  const std::map<std::string, std::vector<at::Tensor>>& slots() const { return slots_; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const NamedTensors& parameters() const { return parameters_; }

 private:
  void lay_out_gradients();
  std::vector<at::Tensor> values() const, gradients() const;

  OptimiserConfig config_;
  NamedTensors parameters_;
  at::Tensor gradients_;  // all of them: each parameter's is a view
  std::map<std::string, std::vector<at::Tensor>> slots_;
  int64_t steps_ = 0;
};

}  // namespace lapse
