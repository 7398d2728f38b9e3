#include "lapse/cli/play.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/cli/terminal.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/rl/registry.h"

namespace lapse {
namespace {

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (const auto& entry : environment_table()) names.push_back(entry.name);
  return names;
}

int watch(const Command& verb, const PlayArguments& arguments) {
  if (Terminal::is_there())
    refuse_given(verb, {"--episodes"}, "has no effect on a terminal, where the agent plays until you leave");
  else
    refuse_given(verb, {"--speed"}, "has no effect without a terminal, where every step is printed");
  const Reader reader = open_reader(arguments.reading);
  const Config& config = reader.config();
  if (!config.environment())
    fail(
        fmt::format("{}: the run reads a {}, and acts in no environment; for such runs there are `lapse eval`, "
                    "`lapse generate` and `lapse inspect`",
                    reader.checkpoint.path().string(), reader.task ? "task" : "text"));
  if (config.task_name != arguments.environment)
    fail(fmt::format("{0}: the run acts in the environment \"{1}\"; to watch it: lapse play {1} {2}",
                     reader.checkpoint.path().string(), config.task_name, for_shell(arguments.reading.run)));
  const auto model = reader.model();
  return watch_agent(*model, *elsewhere(config, arguments.episodes.set).environment(), arguments);
}

int play(const Command& verb, const PlayArguments& arguments) {
  if (!arguments.reading.run.empty()) return watch(verb, arguments);
  const std::string why = "is for watching an agent, and no run is named";
  refuse_given(verb, {"--episodes", "--greedy", "--speed", "--device", "--threads", "--method"}, why);
  for (const auto& [field, value] : arguments.reading.of_method) refuse_given(verb, {flag_of(field)}, why);
  const Config config = generating(arguments.environment, arguments.episodes.set);
  return play_yourself(*config.environment(), arguments);
}

}  // namespace

void add_play(const Command& program, Action& action) {
  const Command verb = program.add_verb("play", "Play in an environment with the arrow keys, or watch an agent there");
  auto arguments = std::make_shared<PlayArguments>();
  verb.add_option("environment", arguments->environment, "which world").required().check(one_of(environment_names()));
  verb.add_option("run", arguments->reading.run, "watch the agent of this run; default: play yourself");
  verb.add_flag("--map", arguments->map, "show the whole world too, not only what the agent sees");
  verb.add_option("--speed", arguments->speed, "on a terminal: steps per second of the agent, once it plays")
      .check(number(0.1, 1000))
      .shows_default();
  add_episodes(verb, arguments->episodes);
  add_device(verb, arguments->reading.device);
  add_threads(verb, arguments->reading.threads);
  add_method_options(verb, arguments->reading);
  verb.footer(
      "Yourself: arrow keys or h j k l move, r begins the episode anew, q leaves. Without a terminal, words of "
      "standard\n"
      "input are actions (left, or letters: llk).\n"
      "An agent: space or right is a step, left a step back, p plays and stops, + and - change the speed, q leaves.\n"
      "Without a terminal every step of --episodes episodes is printed.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("play in a smaller world", [=] { return play(verb, *arguments); });
  });
}

}  // namespace lapse
