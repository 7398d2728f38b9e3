#include "lapse/cli/episode_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"

namespace lapse {

void add_episodes(const Command& verb, EpisodeArguments& arguments) {
  verb.add_option("--episodes", arguments.episodes, "of a run in an environment: play so many episodes")
      .check(whole_number(1, 10'000'000))
      .shows_default();
  verb.add_flag("--greedy", arguments.greedy,
                "of a run in an environment: take the most likely actions instead of sampling");
  verb.add_option("--seed", arguments.seed, "in an environment: the same seed gives the same worlds and draws")
      .check(whole_number(0, int64_t{1} << 53))
      .shows_default();
  verb.add_option("--set", arguments.set,
                  "in an environment: an option of the world, in place of the run's value; may be repeated")
      .type_name("SECTION.KEY=VALUE")
      .repeats();
}

Config elsewhere(const Config& trained, const std::vector<std::string>& set) {
  Config config = generating_otherwise(trained, set);
  const EnvironmentShape known = trained.environment()->shape(), other = config.environment()->shape();
  if (known.cells != other.cells || known.words != other.words || known.actions != other.actions)
    fail(fmt::format("--set {}: the agent knows other words than this world has; leave out what changes them",
                     fmt::join(set, " --set ")));
  return config;
}

void refuse_given(const Command& verb, const std::vector<std::string>& options, const std::string& why) {
  for (const auto& option : options)
    if (verb.count(option) > 0) fail(fmt::format("{} {}; leave it out", option, why));
}

void refuse_of_the_other(const Command& verb, bool acts, const std::vector<std::string>& text) {
  if (acts)
    refuse_given(verb, text, "is for runs that read a text, and this one acts in an environment");
  else
    refuse_given(verb, {"--episodes", "--greedy", "--seed", "--set"}, "is for runs that act in an environment");
}

}  // namespace lapse
