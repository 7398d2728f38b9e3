#include "lapse/train/control.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "lapse/train/ends.h"
#include "lapse/train/episodes.h"
#include "lapse/train/objectives.h"

namespace lapse {
namespace {

constexpr uint64_t kValidationSeed = 1'000'003;  // other worlds than those of `lapse eval` with its usual seeds

class AgentsFeed : public Feed {
 public:
  AgentsFeed(const Config& config, Group& group)
      : config_(config),
        group_(group),
        agents_(*config.environment(), config.train.batch, config.train.seed,
                share_of(config.train.batch, group.rank(), group.size())) {}

  Update update(Learner& learner, bool observe) override {
    auto played = agents_.play(learner.model(), learner.memory(), config_.train.block, config_.actor_critic.discount);
    Update made = learner.update(played.batch, observe);
    const EpisodeSums& own = played.episodes;
    std::array<double, 4> sums = {own.episodes, own.reward, own.score, own.steps};
    group_.sum(sums);
    made.score.more.insert(
        {{"episodes", sums[0]}, {"return", sums[1]}, {"episode_score", sums[2]}, {"episode_steps", sums[3]}});
    return made;
  }

  Json state() const override { return Json::object(); }
  Columns tensors() const override { return agents_.state(); }
  void restore(const JsonObject&, const Columns& tensors) override { agents_.set_state(tensors); }

 private:
  const Config& config_;
  Group& group_;
  Agents agents_;
};

class ControlProblem : public Problem {
 public:
  explicit ControlProblem(const Config& config)
      : config_(config), shape_(config.environment()->shape()), vocabulary_(vocabulary_of(shape_)) {}

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string describe() const override {
    return fmt::format("{} environments \"{}\", {} bits seen, {} actions", config_.train.batch, config_.task_name,
                       shape_.bits(), shape_.actions.size());
  }
  const char* unit() const override { return "step"; }
  std::unique_ptr<Objective> objective() const override { return objective_of(config_).make(config_); }
  std::unique_ptr<Feed> feed(Group& group) override { return std::make_unique<AgentsFeed>(config_, group); }
  bool validates() const override { return true; }
  void require_validation(const Group&) const override {}

  EvaluationResult validate(Transformer& model, Group& group) const override {
    const auto played = play_episodes(model, *config_.environment(),
                                      {.episodes = config_.actor_critic.validation_episodes,
                                       .seed = kValidationSeed,
                                       .streams = config_.train.evaluated(),
                                       .group = group});
    EvaluationResult result{.tokens = played.steps, .seconds = played.seconds, .layers = played.layers};
    result.stopped = played.stopped && played.finite;
    if (!played.finite) result.nats = std::numeric_limits<double>::quiet_NaN();
    for (const Episode& episode : played.episodes) {
      auto& sums = result.score.more;
      sums["episodes"] += 1, sums["return"] += episode.reward, sums["episode_score"] += episode.score;
      sums["episode_steps"] += static_cast<double>(episode.steps);
    }
    return result;
  }

  std::vector<Figure> figures(const Score& score) const override { return episode_figures(shape_, score); }
  std::vector<std::string> shown() const override { return {shape_.score, "return"}; }

 private:
  const Config& config_;
  EnvironmentShape shape_;
  Vocabulary vocabulary_;
};

}  // namespace

std::vector<Figure> episode_figures(const EnvironmentShape& shape, const Score& score) {
  const auto sum = [&](const char* name) { return score.more.contains(name) ? score.more.at(name) : 0; };
  std::vector<Figure> all;
  if (const double n = sum("episodes"); n > 0)
    all = {{shape.score, shape.score, sum("episode_score") / n},
           {"return", "return", sum("return") / n},
           {"steps of an episode", "episode_steps", sum("episode_steps") / n},
           {"episodes", "episodes", n}};
  if (const auto n = static_cast<double>(score.scored); n > 0 && score.more.contains("entropy"))
    all.insert(all.end(), {{"entropy of the policy", "entropy", sum("entropy") / n},
                           {"policy loss", "policy_loss", sum("policy_loss") / n},
                           {"value loss", "value_loss", sum("value_loss") / n}});
  return all;
}

std::unique_ptr<Problem> control_problem(const Config& config) { return std::make_unique<ControlProblem>(config); }

}  // namespace lapse
