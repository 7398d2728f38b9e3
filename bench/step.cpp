// A whole training step against eager PyTorch and the machine's peak: the steps of bench/README.md.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "bench/eager_model.h"
#include "bench/library_step.h"
#include "bench/peak.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"

namespace lapse::bench {
namespace {

using at::Tensor;

const std::vector<const char*> kNames = {"1", "2", "3", "4", "5"};

struct Options {
  std::string only = "all";
  std::string precision = "float32";
  int64_t updates = 10, warm = 2;
  int64_t eager_updates = -1;  // -1: 3, but 1 of step 3, which takes much longer
  bool no_eager = false;
  bool dense = false;

  std::vector<StepShape> chosen(const Common& common) const {
    std::vector<StepShape> some;
    for (const char* name : kNames)
      if (only == "all" || only == name) some.push_back(step_shape(name, common.quick));
    return some;
  }
};

/// A full step of LibraryStep or EagerModel on fresh random tokens.
template <class Model>
std::function<void()> stepper(const StepShape& shape, std::shared_ptr<Model> model) {
  return [=] {
    const Tensor tokens = random_tokens(shape, shape.block + 1);
    model->update(tokens.narrow(1, 0, shape.block), tokens.narrow(1, 1, shape.block));
  };
}

/// The model of a shape with adaptive ends, with a dense softmax.
StepShape with_dense_softmax(StepShape shape) {
  shape.cutoffs = std::vector<int64_t>(), shape.gflop = 0;
  return shape;
}

/// The output of the step alone, forward and backward.
std::function<void()> output_alone(const StepShape& shape) {
  auto model = std::make_shared<Transformer>(make_model(shape));
  return [=] {
    const Tensor h = at::randn({shape.batch, shape.block, shape.width}).set_requires_grad(true);
    model->likelihood(h, random_tokens(shape, shape.block)).nats.backward();
  };
}

double flops_of(const StepShape& shape, const std::string& path) {
  if (path == "softmax") return output_flops(shape);
  return step_flops(path == "dense" ? with_dense_softmax(shape) : shape);
}

std::vector<Path> paths_of(const StepShape& shape, const Options& options, bool quick) {
  auto library = [precision = options.precision](const StepShape& shape) -> std::function<void()> {
    auto step = std::make_shared<LibraryStep>(shape, precision);
    step->fill();
    return [step, update = stepper(shape, step)] {
      update();
      step->require_full();
    };
  };
  auto eager = [=]() -> std::function<void()> {
    auto model = std::make_shared<EagerModel>(shape, make_model(shape).parameters());
    model->fill();
    return stepper(shape, model);
  };
  const int64_t updates = quick ? 1 : options.updates, warm = quick ? 0 : options.warm;
  std::vector<Path> paths = {{"fused", [=] { return library(shape); }, updates, warm}};
  if (shape.cutoffs && options.dense)
    return {{"dense", [=] { return library(with_dense_softmax(shape)); }, updates, warm}};
  if (shape.cutoffs) {
    paths.push_back({"softmax", [=] { return output_alone(shape); }, updates, warm});
    return paths;
  }
  const bool slow = shape.name == "3";
  if (options.no_eager || (quick && slow)) return paths;
  const int64_t some = options.eager_updates > 0 ? options.eager_updates : slow ? 1 : 3;
  paths.push_back({"eager", eager, quick ? 1 : some, slow || quick ? 0 : 1});
  return paths;
}

struct Outcome {
  StepShape shape;
  std::vector<Measured> paths;
};

Outcome measure(const StepShape& shape, const Common& common, const Options& options) {
  Outcome outcome{shape, {}};
  const auto paths = paths_of(shape, options, common.quick);
  for (const auto& path : paths) {
    note(fmt::format("step {}: the memory of {}", shape.name, path.name));
    auto arguments = common.child_arguments(path.name);
    arguments.insert(arguments.end(), {"--case", shape.name});
    arguments.insert(arguments.end(), {"--precision", options.precision});
    if (options.dense) arguments.emplace_back("--dense");
    outcome.paths.push_back({path.name, flops_of(shape, path.name), {}, run_child(arguments)["peak_memory"]});
  }
  note(fmt::format("step {}: times", shape.name));
  const auto times = take_turns(paths);
  for (size_t i = 0; i < paths.size(); ++i) outcome.paths[i].seconds = times[i];
  return outcome;
}

Json report(const Outcome& outcome, double peak, const std::string& precision) {
  const auto& s = outcome.shape;
  const std::string about =
      fmt::format("{} layers, width {}, ffn {}, {} heads, K {}, B {}, M {}, L {}, R {}, V {}", s.layers, s.width,
                  s.feed_forward, s.heads, s.block, s.batch, s.memory, s.max_span, s.ramp, s.vocabulary);
  Json json = {{"case", s.name},
               {"about", about},
               {"precision", precision},
               {"gflop", step_flops(s) * 1e-9},
               {"paths", paths_json(outcome.paths, peak)}};
  std::cout << fmt::format("\nstep {}: {}; {:.4g} GFLOP\n{}", s.name, about, json["gflop"].get<double>(),
                           paths_table(json["paths"]));
  for (const auto& path : outcome.paths) {
    const double rate = static_cast<double>(s.tokens()) / median(path.seconds);
    json["paths"][path.name]["tokens_per_second"] = rate;
    std::cout << fmt::format("  {}: {:.0f} tokens/s\n", path.name, rate);
  }
  return json;
}

Json run(const Common& common, const Options& options) {
  check_step();
  for (const char* name : kNames) step_flops(step_shape(name, false));  // are as stated
  Peaks peaks(common.quick);
  const auto type = options.precision == "bf16" ? at::kBFloat16 : at::kFloat;
  if (!common.quick && !multiplies(type)) fail("--precision bf16: this processor does not multiply bfloat16");
  std::vector<Outcome> outcomes;
  for (const auto& shape : options.chosen(common)) {
    peaks.measure(type);
    outcomes.push_back(measure(shape, common, options));
  }
  peaks.measure_again();
  std::cout << peaks.text();
  Json results = Json::array();
  for (const auto& outcome : outcomes) results.push_back(report(outcome, peaks.flops(type), options.precision));
  return {{"peak", peaks.json()}, {"results", results}};
}

/// Enough updates of one path for its memory to reach its height.
void run_alone(const Common& common, const Options& options) {
  for (const auto& shape : options.chosen(common))
    for (const auto& path : paths_of(shape, options, common.quick))
      if (path.name == common.child) {
        const auto work = path.prepare();
        const int updates = common.quick || path.name == "eager" || path.name == "dense" ? 1 : 3;
        for (int i = 0; i < updates; ++i) work();
        return;
      }
  fail("there is no path " + common.child);
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"step", "Times whole training steps; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--case", options.only, "which step")
        .check(one_of({"all", "1", "2", "3", "4", "5"}))
        .shows_default();
    app.add_option("--updates", options.updates, "timed updates").check(whole_number(1, 100000)).shows_default();
    app.add_option("--warm", options.warm, "updates before them").check(whole_number(0, 100000)).shows_default();
    app.add_option("--eager-updates", options.eager_updates, "timed updates of the eager model; default 3, step 3: 1")
        .check(whole_number(1, 100000));
    app.add_flag("--no-eager", options.no_eager, "without the eager model");
    app.add_flag("--dense", options.dense, "step 5 with a dense softmax in place of the adaptive one");
    add_precision(app, options.precision);
  };
  program.run = [&](const Common& common) { return run(common, options); };
  program.child = [&](const Common& common) { run_alone(common, options); };
  return run_program(program, argc, argv);
}
