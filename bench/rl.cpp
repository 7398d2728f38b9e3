// Environments, and agents that act and learn in them, against eager PyTorch: see bench/README.md.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "bench/eager_agents.h"
#include "bench/library_agents.h"
#include "bench/peak.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/rl/registry.h"
#include "lapse/train/agent.h"

namespace lapse::bench {
namespace {

struct Options {
  std::string only = "all";
  int64_t updates = 20, warm = 12;
  int64_t eager_updates = -1;  // -1: 5 of Corridor, 3 of Portal
  int64_t eager_part = EagerAgents::kPart;
  bool no_eager = false;

  bool wants(const std::string& name) const { return only == "all" || only == name; }
  std::vector<AgentCase> chosen(bool quick) const {
    std::vector<AgentCase> some;
    for (const char* task : {"corridor", "portal"})
      for (const bool full : {false, true})
        if (const AgentCase which{task, full, quick}; wants(which.name())) some.push_back(which);
    return some;
  }
};

/// Steps per second of each environment on one core: random actions, and every state observed.
Json environments(bool quick) {
  constexpr int64_t kWorlds = 64;
  const int64_t rounds = quick ? 10 : 20'000;
  Json all = Json::array();
  std::vector<Path> paths;
  for (const auto& entry : environment_table())
    paths.push_back({entry.name,
                     [&entry, rounds]() -> std::function<void()> {
                       std::shared_ptr<Environments> worlds = entry.options()->make(kWorlds, 1);
                       Random random(1, "actions");
                       std::vector<int32_t> actions(kWorlds * rounds);
                       for (auto& action : actions)
                         action = static_cast<int32_t>(random.below(worlds->shape().actions.size()));
                       return [=] {
                         std::vector<StepResult> results(kWorlds);
                         std::vector<int32_t> bits(kWorlds * worlds->shape().most_words);
                         for (int64_t i = 0; i < rounds; ++i) {
                           worlds->step(0, kWorlds, actions.data() + i * kWorlds, results.data());
                           worlds->observe(0, kWorlds, bits.data());
                         }
                       };
                     },
                     quick ? 1 : 9});
  note("environments: times");
  const auto times = take_turns(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    const double rate = static_cast<double>(kWorlds * rounds) / median(times[i]);
    all.push_back({{"environment", paths[i].name}, {"steps_per_second", rate}});
    std::cout << fmt::format("{:10} {:6.1f} million steps/s on one core\n", paths[i].name, rate * 1e-6) << std::flush;
  }
  return all;
}

/// Both parts of every update apart, in seconds.
struct Shares {
  std::vector<double> acting, learning;

  Json json() const { return {{"acting_ms", median(acting) * 1e3}, {"learning_ms", median(learning) * 1e3}}; }
};

/// Acting and learning of so many updates; what Feed::update does, with a clock between the two.
Shares library_shares(LibraryAgents& library, int64_t updates) {
  const Config& config = library.config();
  Learner& learner = library.learner();
  Agents agents(*config.environment(), config.train.batch, config.train.seed);
  agents.set_state(library.state());
  Shares shares;
  for (int64_t i = 0; i < updates; ++i) {
    std::optional<Agents::Played> played;
    shares.acting.push_back(seconds([&] {
      played = agents.play(learner.model(), learner.memory(), config.train.block, config.actor_critic.discount);
    }));
    shares.learning.push_back(seconds([&] { learner.update(played->batch); }));
  }
  return shares;
}

struct Outcome {
  AgentCase which;
  int64_t steps;                   ///< of an update
  double rows_before, rows_after;  ///< that the library's memory holds of an environment, before timing and after it
  std::vector<Measured> paths;
  std::vector<Shares> shares;
};

Outcome measure(const AgentCase& which, const Common& common, const Options& options) {
  const int64_t warm = common.quick ? 2 : options.warm, updates = common.quick ? 1 : options.updates;
  const int64_t slow = options.eager_updates > 0 ? options.eager_updates : which.task == "portal" ? 3 : 5;
  std::vector<std::string> names = {"fused"};
  if (!options.no_eager) names.emplace_back("eager");
  Outcome outcome{which};
  for (const auto& name : names) {
    note(fmt::format("{}: the memory of {}", which.name(), name));
    auto arguments = common.child_arguments(name);
    arguments.insert(arguments.end(), {"--case", which.name(), "--eager-part", std::to_string(options.eager_part)});
    outcome.paths.push_back({name, 0, {}, run_child(arguments)["peak_memory"]});
  }
  note(fmt::format("{}: times", which.name()));
  auto library = std::make_shared<LibraryAgents>(which, warm);
  outcome.steps = library->config().train.batch * library->config().train.block;
  outcome.rows_before = library->rows();
  outcome.shares.resize(names.size());
  // The eager agents go on from the same state, so that both have memories of the same sizes.
  std::vector<Path> paths = {
      {"fused", [library]() -> std::function<void()> { return [library] { library->update(); }; }, updates, 0}};
  if (!options.no_eager)
    paths.push_back({"eager",
                     [&, library]() -> std::function<void()> {
                       auto eager = std::make_shared<EagerAgents>(library->config(), library->learner(),
                                                                  library->state(), options.eager_part);
                       return [&, eager] {
                         EagerAgents::Played block;
                         outcome.shares[1].acting.push_back(seconds([&] { block = eager->act(); }));
                         outcome.shares[1].learning.push_back(seconds([&] { eager->learn(block); }));
                       };
                     },
                     common.quick ? 1 : slow, common.quick ? 0 : 1});
  const auto times = take_turns(paths);
  for (size_t i = 0; i < names.size(); ++i) outcome.paths[i].seconds = times[i];
  outcome.rows_after = library->rows();
  outcome.shares[0] = library_shares(*library, updates);
  return outcome;
}

Json report(const Outcome& outcome, double peak) {
  const Config config = outcome.which.config();
  const std::string about =
      fmt::format("{} layers, width {}, ffn {}, {} heads, K {}, {} environments; {:.0f} to {:.0f} rows held",
                  config.model.layers, config.model.width, config.model.feed_forward, config.model.heads,
                  config.train.block, config.train.batch, outcome.rows_before, outcome.rows_after);
  std::cout << fmt::format("\n{}: {}\n  {:8} {:>10} {:>10} {:>10} {:>10} {:>12} {:>11} {:>12}\n", outcome.which.name(),
                           about, "path", "median ms", "least ms", "acting", "learning", "steps/s", "fused/this",
                           "peak memory");
  Json json = {{"case", outcome.which.name()},
               {"about", about},
               {"rows", {outcome.rows_before, outcome.rows_after}},
               {"paths", paths_json(outcome.paths, peak)}};
  for (size_t i = 0; i < outcome.paths.size(); ++i) {
    const auto& path = outcome.paths[i];
    Json& own = json["paths"][path.name];
    own.erase("gflops"), own.erase("of_peak");
    own.update(outcome.shares[i].json());
    own["steps_per_second"] = static_cast<double>(outcome.steps) / median(path.seconds);
    std::cout << fmt::format("  {:8} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>12.0f} {:>11.3f} {:>9.0f} MB\n",
                             path.name, own["ms"].get<double>(), own["ms_min"].get<double>(),
                             own["acting_ms"].get<double>(), own["learning_ms"].get<double>(),
                             own["steps_per_second"].get<double>(), own.value("fused_over_this", 1.0),
                             static_cast<double>(path.peak_memory) * 1e-6);
  }
  return json;
}

Json run(const Common& common, const Options& options) {
  check_agents();
  Peaks peaks(common.quick);
  peaks.measure(at::kFloat);
  const Json alone = options.wants("environments") ? environments(common.quick) : Json::array();
  std::vector<Outcome> outcomes;
  for (const auto& which : options.chosen(common.quick)) {
    outcomes.push_back(measure(which, common, options));
    peaks.measure(at::kFloat);
  }
  std::cout << peaks.text();
  Json results = Json::array();
  for (const auto& outcome : outcomes) results.push_back(report(outcome, peaks.flops(at::kFloat)));
  return {{"peak", peaks.json()}, {"eager_part", options.eager_part}, {"environments", alone}, {"results", results}};
}

/// Enough updates of one path for its memory to reach its height.
void run_alone(const Common& common, const Options& options) {
  const int64_t warm = common.quick ? 2 : options.warm;
  for (const auto& which : options.chosen(common.quick)) {
    if (common.child == "fused") {
      LibraryAgents(which, warm);
      continue;
    }
    std::optional<EagerAgents> eager;
    {
      LibraryAgents library(which, 0);
      eager.emplace(library.config(), library.learner(), library.state(), options.eager_part);
    }
    for (int64_t i = 0; i < std::min<int64_t>(warm, 4); ++i) eager->learn(eager->act());
  }
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"rl", "Times environments, and agents that act and learn in them; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--case", options.only, "what is measured")
        .check(one_of({"all", "environments", "corridor", "corridor_full", "portal", "portal_full"}))
        .shows_default();
    app.add_option("--updates", options.updates, "timed updates").check(whole_number(1, 100000)).shows_default();
    app.add_option("--warm", options.warm, "updates before them").check(whole_number(1, 100000)).shows_default();
    app.add_option("--eager-updates", options.eager_updates, "timed updates of the eager agents; default 5, Portal: 3")
        .check(whole_number(1, 100000));
    app.add_option("--eager-part", options.eager_part, "environments that the eager agents learn from at a time")
        .check(whole_number(1, 1 << 20))
        .shows_default();
    app.add_flag("--no-eager", options.no_eager, "without the eager agents");
  };
  program.run = [&](const Common& common) { return run(common, options); };
  program.child = [&](const Common& common) { run_alone(common, options); };
  return run_program(program, argc, argv);
}
