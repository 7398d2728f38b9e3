// The operator against eager PyTorch, libtorch's own fused attention and the machine's peak, in the cases that
// bench/README.md explains.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "bench/eager.h"
#include "bench/peak.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"

namespace lapse::bench {
namespace {

/// A call, and what it is compared with.
struct Case {
  std::string name, about;
  CallShape shape;
  bool libtorch = false;                  ///< eager and libtorch's fused attention at the same shapes
  std::string rival = {};                 ///< another call of the operator: its name,
  std::function<Call()> rival_call = {};  ///< and itself
};

/// The cases; `scale` divides rows and queries.
std::vector<Case> cases(int64_t scale) {
  const int64_t uniform = 768 / scale, few = 267 / scale, many = 8 * uniform - 7 * few;
  const CallShape full = {std::vector<int64_t>(8, uniform), 256 / scale, 4, 64};
  CallShape half = full, ragged = full, bfloat16 = full;
  half.expired = 0.5;
  ragged.rows = std::vector<int64_t>(8, few), ragged.rows[3] = many;
  bfloat16.type = at::kBFloat16;
  const CallShape expired90 = {std::vector<int64_t>(2, 8192 / scale), 512 / scale, 8, 64, 0.9};
  const std::string shape = "B 8, H 4, K 256, 768 rows, D 64";
  return {
      {"full", shape + ", no row expired", full, true},
      {"half", shape + ", half the rows expired; full: none", half, false, "full", [=] { return make_call(full); }},
      {"expired90", "B 2, H 8, K 512, 8192 rows, D 64, 90 % expired; survivors: the other rows alone", expired90, false,
       "survivors", [=] { return survivors(make_call(expired90)); }},
      {"ragged", "B 8, H 4, K 256, D 64, 267 rows and 4275 in one sample; uniform: 768 in each", ragged, false,
       "uniform", [=] { return make_call(full); }},
      {"bf16", shape + ", no row expired, bfloat16", bfloat16, true},
  };
}

/// A path and what a repeat of it counts for.
struct Work {
  Path path;
  double flops;
};

template <class Runner, class Make>
Path path_of(const std::string& name, int64_t repeats, const Make& make) {
  auto prepare = [make]() -> std::function<void()> {
    auto runner = std::make_shared<Runner>(make());
    return [runner] { runner->run(); };
  };
  return {name, prepare, repeats, repeats > 1 ? 2 : 0};
}

std::vector<Work> works(const Case& c, int64_t repeats) {
  const auto call = [shape = c.shape] { return make_call(shape); };
  const Call example = call();
  std::vector<Work> all = {{path_of<Call>("fused", repeats, call), example.flops()}};
  if (c.libtorch) {
    all.push_back({path_of<EagerCall>("eager", repeats, call), example.flops()});
    all.push_back({path_of<FusedLibtorchCall>("sdpa", repeats, call), example.flops(/*with_positions=*/false)});
  }
  if (c.rival_call) all.push_back({path_of<Call>(c.rival, repeats, c.rival_call), c.rival_call().flops()});
  return all;
}

struct Options {
  std::string only = "all";
  int64_t repeats = 15;

  std::vector<Case> chosen(const Common& common) const {
    std::vector<Case> some;
    for (auto& c : cases(common.quick ? 16 : 1))
      if ((only == "all" || only == c.name) && (common.quick || multiplies(c.shape.type))) some.push_back(c);
    return some;
  }
};

/// All of a case but its share of the peak.
struct Outcome {
  Case what;
  std::vector<Measured> paths;
  Call::Visible visible;
};

Outcome measure(const Case& c, const Common& common, int64_t repeats) {
  note(fmt::format("measuring {}", c.name));
  Outcome outcome{c, {}, make_call(c.shape).visible()};
  std::vector<Path> paths;
  for (const auto& [path, flops] : works(c, repeats)) {
    Measured measured{path.name, flops, {}};
    if (c.libtorch && !(common.quick && c.name != "full")) {
      auto arguments = common.child_arguments(path.name);
      arguments.insert(arguments.end(), {"--case", c.name});
      measured.peak_memory = run_child(arguments)["peak_memory"];
    }
    outcome.paths.push_back(measured);
    paths.push_back(path);
  }
  const auto times = take_turns(paths);
  for (size_t i = 0; i < paths.size(); ++i) outcome.paths[i].seconds = times[i];
  return outcome;
}

Json report(const Outcome& outcome, const Peaks& peaks) {
  const auto& [c, measured, visible] = outcome;
  const double peak = peaks.flops(c.shape.type), fused = median(measured.front().seconds);
  Json json = {{"case", c.name},
               {"about", c.about},
               {"precision", type_name(c.shape.type)},
               {"gflop", measured.front().flops * 1e-9},
               {"visible_pairs", visible.share},
               {"of_peak_over_visible_pairs", visible.flops / fused / peak},
               {"paths", paths_json(measured, peak)}};
  std::cout << fmt::format("\n{}: {}\n{}", c.name, c.about, paths_table(json["paths"]))
            << fmt::format("  {:.1f} % of the pairs have m > 0; over them alone {:.1f} % of peak\n",
                           visible.share * 100, json["of_peak_over_visible_pairs"].get<double>() * 100);
  return json;
}

Json run(const Common& common, const Options& options) {
  check_eager();
  Peaks peaks(common.quick);
  std::vector<Outcome> outcomes;
  for (const auto& c : options.chosen(common)) {
    peaks.measure(c.shape.type);
    outcomes.push_back(measure(c, common, common.quick ? 1 : options.repeats));
  }
  peaks.measure_again();
  std::cout << peaks.text();
  Json results = Json::array();
  for (const auto& outcome : outcomes) results.push_back(report(outcome, peaks));
  return {{"peak", peaks.json()}, {"results", results}};
}

/// A few repeats of one path of one case.
void run_alone(const Common& common, const Options& options) {
  for (const auto& c : options.chosen(common))
    for (const auto& [path, flops] : works(c, 1))
      if (path.name == common.child) {
        const auto work = path.prepare();
        for (int i = 0; i < 3; ++i) work();
        return;
      }
  fail("there is no path " + common.child);
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"attention", "Times the operator ramp_attention, forward and backward; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    std::vector<std::string> names = {"all"};
    for (const auto& c : cases(1)) names.push_back(c.name);
    app.add_option("--case", options.only, "what to measure").check(one_of(names)).shows_default();
    app.add_option("--repeat", options.repeats, "timed repeats of each path")
        .check(whole_number(1, 10000))
        .shows_default();
  };
  program.run = [&](const Common& common) { return run(common, options); };
  program.child = [&](const Common& common) { run_alone(common, options); };
  return run_program(program, argc, argv);
}
