#include "lapse/train/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/train/control.h"
#include "lapse/train/device.h"
#include "lapse/train/ends.h"
#include "lapse/train/prediction.h"
#include "lapse/train/shares.h"

namespace lapse {
namespace {

LearnerOptions learner_options(const Config& config, Group& group) {
  LearnerOptions options{.batch = config.train.batch,
                         .parts = parts_of(config.train, group),
                         .updates = config.train.updates,
                         .seed = static_cast<uint64_t>(config.train.seed),
                         .bfloat16 = config.train.precision == "bf16",
                         .optimiser = config.optimiser,
                         .group = group};
  if (!config.train.from.empty()) options.optimiser.warmup = 0;
  return options;
}

/// Of a run of another method the weights may fit or not.
void load_weights(const Checkpoint& tuned, Transformer& model, const Config& config) {
  try {
    tuned.load_weights(model, config.method_name);
  } catch (const Error& error) {
    const std::string& theirs = tuned.config().method_name;
    if (theirs == config.method_name) throw;
    fail(fmt::format("{} (train.from is of a run with {}, and this one has {})", error.what(), theirs,
                     config.method_name));
  }
}

/// Weights fit a model of another activation, say, which may be meant, or not.
void tell_changed_model(const Checkpoint& tuned, const Config& config) {
  std::vector<std::string> changed;
  for (const auto& [section, key, was, is, is_path] : Config::differences(tuned.config(), config))
    if (section == "model") changed.push_back(fmt::format("model.{} = {}, not {}", key, was, is));
  if (!changed.empty())
    std::cerr << fmt::format("lapse: note: {} was trained with {}\n", tuned.path().string(), fmt::join(changed, "; "));
}

}  // namespace

std::unique_ptr<Problem> open_problem(const Config& config, const Checkpoint* from) {
  auto problem = config.environment() ? control_problem(config) : prediction_problem(config, from);
  if (from && config.generates() && from->vocabulary().to_json() != problem->vocabulary().to_json())
    fail(from->path().string() + ": the run to go on from " +
         (from->config().environment() ? "acts in \"" + from->config().task_name + "\", and knows other words"
                                       : "reads other tokens") +
         " than data.task = \"" + config.task_name + "\"; leave out train.from, or give the same task and options");
  return problem;
}

std::unique_ptr<Learner> make_learner(const Config& config, const Problem& problem, const Checkpoint* tuned,
                                      Group& group) {
  Transformer model(config.model, config.method(), ends_of(config, problem.vocabulary()), config.train.block,
                    Random(config.train.seed, "weights"));
  model.to(find_device(config.train.device));
  auto learner = std::make_unique<Learner>(std::move(model), problem.objective(), learner_options(config, group));
  if (tuned) {
    const OptimiserConfig &own = config.optimiser, &theirs = tuned->config().optimiser;
    const auto refuse = [&](const std::string& name, const auto& ours, const auto& its) {
      fail(fmt::format(
          "{}: optimiser.{} is {}, but this run has {}, and training goes on with its moments; give the same",
          tuned->path().string(), name, ours, its));
    };
    if (own.name != theirs.name) refuse("name", '"' + own.name + '"', '"' + theirs.name + '"');
    if (slots_of(own) != slots_of(theirs)) refuse("momentum", own.momentum, theirs.momentum);
    load_weights(*tuned, learner->model(), config);
    if (group.first()) tell_changed_model(*tuned, config);
    tuned->load_optimiser(learner->optimiser());
  }
  return learner;
}

bool validates(const Config& config, const Problem& problem) {
  return config.train.validate_every > 0 && problem.validates();
}

void require_validation(const Config& config, const Problem& problem, const Group& group) {
  if (!validates(config, problem)) return;
  try {
    problem.require_validation(group);
  } catch (const Error& error) {
    fail(std::string("the validation part: ") + error.what() + ", or train.validate_every = 0");
  }
}

MemoryEstimate estimate_memory(const Config& config, const Problem& problem, const Group& group) {
  return estimate_memory(config, ends_of(config, problem.vocabulary()), group);
}

}  // namespace lapse
