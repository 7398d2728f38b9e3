#include "bench/library_agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/eager_agents.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/train/agent.h"
#include "lapse/train/control.h"
#include "lapse/train/setup.h"

namespace lapse::bench {
namespace {

using at::Tensor;

constexpr double kFullSpan = 0.995;  // of L

/// The paper's for Portal (A.3.1), where they are not Corridor's.
const std::vector<std::string> kPortal = {
    "data.task=portal",         "train.batch=1024",      "train.parts=8",
    "expire_span.max_span=100", "expire_span.loss=1e-6", "optimiser.name=adam",
    "optimiser.rate=5e-4",      "optimiser.clip=0.1",    "actor_critic.discount=0.98"};
/// What is timed hardly learns, so that its memories keep their size whoever is timed first.
const std::string kStill = "optimiser.rate=1e-9";
const std::vector<std::string> kQuick = {"train.batch=32",          "train.block=12",      "model.width=16",
                                         "model.feed_forward=32",   "corridor.longest=10", "portal.most_steps=40",
                                         "expire_span.max_span=24", "expire_span.ramp=4"};

/// Error if the largest difference is more than this share of the largest expected value.
void require_close(const std::string& what, const Tensor& got, const Tensor& expected, double share) {
  const double worst = (got - expected).abs().max().item<double>(), largest = expected.abs().max().item<double>();
  if (!(worst <= share * largest))
    fail(fmt::format("the eager agents and the library's disagree on {}: by {:.3g} of {:.3g}", what, worst, largest));
}

/// One update of both from the same state.
void check_update(LibraryAgents& library, int64_t update, const std::string& name) {
  const auto what = [&](const std::string& thing) { return fmt::format("{} (update {} of {})", thing, update, name); };
  const Config& config = library.config();
  Learner& learner = library.learner();
  EagerAgents eager(config, learner, library.state());
  Agents agents(*config.environment(), config.train.batch, config.train.seed);
  agents.set_state(library.state());
  const auto played =
      agents.play(learner.model(), learner.memory(), config.train.block, config.actor_critic.discount).batch;
  const auto block = eager.act();
  if (!block.actions.equal(played.target)) fail(what("the eager agents and the library's choose other actions"));
  require_close(what("returns"), block.returns, played.more.at("returns"), 1e-4);

  const NamedTensors parameters = learner.model().parameters();
  std::vector<Tensor> before;
  for (const auto& [name, parameter] : parameters) before.push_back(parameter->detach().clone());
  const double got = eager.learn(block), expected = library.update();
  require_close(what("the loss"), at::scalar_tensor(got), at::scalar_tensor(expected), 1e-4);
  const auto& own = eager.weights().all;
  double largest_change = 0, worst = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    require_close(what("the gradient of " + name), own[i].second.grad(),
                  EagerWeights::converted(name, parameter->grad()), 1e-3);
    const Tensor weights = EagerWeights::converted(name, *parameter);
    worst = std::max(worst, (own[i].second.detach() - weights).abs().max().item<double>());
    largest_change = std::max(largest_change, (parameter->detach() - before[i]).abs().max().item<double>());
  }
  // Both optimisers divide by the gradients' size, which amplifies the rounding of those that are nearly 0.
  if (!(worst <= 0.01 * largest_change))
    fail(fmt::format("{}: by {:.3g} where the update's largest change is {:.3g}",
                     what("the eager agents and the library's disagree on the new weights"), worst, largest_change));
  if (std::abs(eager.rows() - library.rows()) > 1e-9)
    fail(fmt::format("{}: {} and {} of an environment", what("the eager agents and the library's hold other rows"),
                     eager.rows(), library.rows()));
}

}  // namespace

Config AgentCase::config() const {
  Config config;
  read_config(config.sections(), LAPSE_SOURCE "/examples/paper-corridor.toml");
  set_config(config.sections(), "expire_span.initial_fraction=0.1");  // memories as they are after most of a training
  if (task == "portal")
    for (const auto& setting : kPortal) set_config(config.sections(), setting);
  if (quick)
    for (const auto& setting : kQuick) set_config(config.sections(), setting);
  else
    set_config(config.sections(), kStill);
  config.check();
  return config;
}

LibraryAgents::LibraryAgents(const AgentCase& which, int64_t updates)
    : config_(std::make_unique<Config>(which.config())),
      problem_(control_problem(*config_)),
      learner_(make_learner(*config_, *problem_)),
      feed_(problem_->feed(solo())) {
  if (which.full)
    for (auto& [name, parameter] : learner_->model().parameters())
      if (of_spans(name)) parameter->detach().fill_(name.ends_with("bias") ? std::log(kFullSpan / (1 - kFullSpan)) : 0);
  for (int64_t i = 0; i < updates; ++i) update();
}

double LibraryAgents::update() {
  const Update made = feed_->update(*learner_, /*observe=*/false);
  if (!std::isfinite(made.loss) || !std::isfinite(made.gradient_norm))
    fail(fmt::format("loss {}, gradient norm {}", made.loss, made.gradient_norm));
  return made.loss;
}

double LibraryAgents::rows() const {
  double sum = 0, tables = 0;
  for (const auto& memory : learner_->memory())
    for (const auto& table : memory.layers)
      sum += static_cast<double>(table.rows()), tables += static_cast<double>(table.samples());
  return sum / tables;
}

void check_agents() {
  for (const char* task : {"corridor", "portal"})
    for (const bool full : {false, true}) {
      const AgentCase which{task, full, /*quick=*/true};
      LibraryAgents library(which, 0);
      for (int64_t update = 1; update <= 6; ++update) check_update(library, update, which.name());
    }
}

}  // namespace lapse::bench
