// Environments whose every step is written down, for tests of agents.
#pragma once

#include <algorithm>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/rl/environment.h"
#include "lapse/train/ends.h"

namespace lapse {

constexpr int64_t kCells = 2, kWords = 3, kActions = 3;

/// What is seen before a step, and what the step brings whatever the action.
struct ScriptedStep {
  std::vector<int32_t> bits;
  float reward = 0;
  bool end = false;
};
using Script = std::vector<ScriptedStep>;

/// `length` steps of random bits and rewards; about every `episode` steps one ends an episode.
inline Script random_script(uint64_t seed, int64_t length, int64_t episode) {
  Random random(seed, "script");
  Script script(length);
  for (auto& step : script) {
    for (int32_t bit = 0; bit < kCells * kWords; ++bit)
      if (random.below(3) == 0) step.bits.push_back(bit);
    step.reward = static_cast<float>(random.normal()), step.end = random.below(episode) == 0;
  }
  script.back().end = true;
  return script;
}

class ScriptedEnvironments : public Environments {
 public:
  ScriptedEnvironments(EnvironmentShape shape, std::vector<Script> scripts)
      : shape_(std::move(shape)), scripts_(std::move(scripts)), at_(scripts_.size(), 0) {}

  int64_t size() const override { return std::ssize(scripts_); }
  const EnvironmentShape& shape() const override { return shape_; }
  void begin(int64_t i, const Random&) override { at_[i] = 0; }
  void observe(int64_t first, int64_t count, int32_t* bits) const override {
    for (int64_t i = first; i < first + count; ++i, bits += shape_.most_words) {
      std::fill_n(bits, shape_.most_words, -1);
      std::ranges::copy(scripts_[i][at_[i]].bits, bits);
    }
  }
  void step(int64_t first, int64_t count, const int32_t*, StepResult* results) override {
    for (int64_t i = first; i < first + count; ++i) {
      const ScriptedStep& step = scripts_[i][at_[i]];
      *results++ = {step.reward, step.end, 1};
      at_[i] = (at_[i] + 1) % std::ssize(scripts_[i]);
    }
  }
  std::vector<int64_t> state(int64_t i) const override { return {at_[i]}; }
  void set_state(int64_t i, const std::vector<int64_t>& state) override {
    if (state[0] < 0 || state[0] >= std::ssize(scripts_[i])) fail("no such step");
    at_[i] = state[0];
  }
  std::string draw(int64_t) const override { return ""; }
  std::string legend() const override { return ""; }

 private:
  EnvironmentShape shape_;
  std::vector<Script> scripts_;
  std::vector<int64_t> at_;
};

/// Environment i follows the script number i modulo their number.
class ScriptedOptions : public EnvironmentOptions {
 public:
  explicit ScriptedOptions(std::vector<Script> scripts) : scripts_(std::move(scripts)) {}

  std::string name() const override { return "scripted"; }
  Fields fields() override { return {}; }
  EnvironmentShape shape() const override {
    return {kCells, {"a", "b", "c"}, {"x", "y", "z"}, kCells * kWords, "success", 1, 20};
  }
  std::unique_ptr<Environments> make(int64_t count, uint64_t) const override {
    std::vector<Script> scripts;
    for (int64_t i = 0; i < count; ++i) scripts.push_back(scripts_[i % scripts_.size()]);
    return std::make_unique<ScriptedEnvironments>(shape(), std::move(scripts));
  }

 private:
  std::vector<Script> scripts_;
};

/// A tiny model of an agent in such environments.
inline std::unique_ptr<Transformer> tiny_agent(const std::string& method, uint64_t seed = 1) {
  const auto options = method_options(method, {{"max_span", "9"}, {"size", "6"}, {"rate", "2"}, {"budget", "5"}});
  auto model = std::make_unique<Transformer>(tiny_config("post"), *options, agent_ends(kCells * kWords, kActions),
                                             kBlock, Random(seed, "weights"));
  vary_spans(*model, Random(seed, "spans"));
  return model;
}

}  // namespace lapse
