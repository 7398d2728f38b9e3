// Methods beside each other: Adaptive-Span's training step against fixed span's, and decoding under budgets, selective
// attention and the baselines that need no training.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "bench/library_step.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/forgetting/registry.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Options {
  int64_t updates = 4, window = 200;
};

// ----- steps ---------------------------------------------------------------------------------------------------------

/// Step 1's model with a window of L = 4096; Adaptive-Span's heads read a quarter of it.
StepShape long_shape(bool quick) {
  StepShape shape = step_shape("1", quick);
  shape.memory = shape.max_span;
  return shape;
}

std::shared_ptr<LibraryStep> window_step(const StepShape& shape, const std::string& method) {
  const bool adaptive = method == "adaptive_span";
  Settings settings = {{"max_span", std::to_string(shape.max_span)}};
  if (adaptive) settings.merge(Settings{{"ramp", std::to_string(shape.ramp)}, {"initial_fraction", "0.25"}});
  auto step = std::make_shared<LibraryStep>(shape, "float32", make_model(shape, method, settings));
  const at::NoGradGuard no_grad;
  for (int64_t seen = 0; seen < shape.max_span; seen += shape.block) step->read();
  return step;
}

Json steps(const Common& common, const Options& options) {
  const StepShape shape = long_shape(common.quick);
  std::vector<Path> paths;
  for (const char* method : {"adaptive_span", "fixed_span"})
    paths.push_back({method,
                     [=]() -> std::function<void()> {
                       return [step = window_step(shape, method), shape] {
                         const Tensor tokens = random_tokens(shape, shape.block + 1);
                         step->update(tokens.narrow(1, 0, shape.block), tokens.narrow(1, 1, shape.block));
                       };
                     },
                     common.quick ? 1 : static_cast<int>(options.updates), common.quick ? 0 : 1});
  const auto times = take_turns(paths);
  const double adaptive = median(times[0]), fixed = median(times[1]);
  std::cout << fmt::format(
      "step 1's model, window of {}: adaptive_span (spans of a quarter) {:.0f} ms, fixed_span {:.0f} ms: {:.2f}\n",
      shape.max_span, adaptive * 1e3, fixed * 1e3, adaptive / fixed);
  return {{"max_span", shape.max_span},
          {"adaptive_span_ms", adaptive * 1e3},
          {"fixed_span_ms", fixed * 1e3},
          {"adaptive_over_fixed", adaptive / fixed}};
}

// ----- decoding under a budget ---------------------------------------------------------------------------------------

/// A stream of step 1's model with a method over the newest `rows` timesteps, of which a layer holds at most `budget`
/// (0: all).
class Stream {
 public:
  Stream(const StepShape& shape, const std::string& method, int64_t rows, int64_t budget)
      : shape_(shape),
        model_(make_model(shape, method, {{"max_span", std::to_string(rows)}}, {{"budget", std::to_string(budget)}})),
        memory_(model_.begin(1, Stored::projections)) {
    const at::NoGradGuard no_grad;
    for (int64_t seen = 0; seen < rows + 64; seen += shape.block)
      model_.forward(random_tokens(shape, shape.block), memory_, {});
    for (int64_t i = 0; i < 64; ++i) next();
  }
  void next() {
    const at::NoGradGuard no_grad;
    model_.forward(random_tokens(shape_, 1), memory_, {});
  }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  StepShape shape_;
  Transformer model_;
  ModelMemory memory_;
};

StepShape one_stream(const Common& common) {
  StepShape shape = step_shape("1", common.quick);
  shape.batch = 1;
  return shape;
}

int64_t all_rows(const Common& common) { return common.quick ? 128 : 1024; }

/// How a method decodes.
struct Case {
  std::string name, method;
  int64_t rows, budget;
};

/// Of each case the median time of a token, and the bytes of its memory.
Json decode(const Common& common, const Options& options, const std::vector<Case>& cases) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (const auto& c : cases)
    streams.push_back(std::make_unique<Stream>(one_stream(common), c.method, c.rows, c.budget));
  std::vector<std::vector<double>> times(cases.size());
  const int64_t window = common.quick ? 4 : options.window;
  for (int64_t i = 0; i < 8; ++i)  // in turns, so that a disturbance hits all alike
    for (size_t c = 0; c < cases.size(); ++c)
      for (int64_t j = 0; j < std::max<int64_t>(1, window / 8); ++j)
        times[c].push_back(seconds([&] { streams[c]->next(); }));
  Json json;
  for (size_t c = 0; c < cases.size(); ++c)
    json[cases[c].name] = {{"ms", median(times[c]) * 1e3}, {"memory_bytes", streams[c]->bytes()}};
  return json;
}

Json budgets(const Common& common, const Options& options) {
  const int64_t rows = all_rows(common), budget = rows / 8;
  const std::string method = "selective_attention";
  // Of a window of a few timesteps attention takes next to nothing: what is left is the rest of the model.
  Json json =
      decode(common, options, {{"full", method, rows, 0}, {"budget", method, rows, budget}, {"none", method, 2, 0}});
  const double full = json["full"]["ms"], held = json["budget"]["ms"], rest = json["none"]["ms"];
  json["rows"] = rows, json["budget_rows"] = budget;
  json["attention_over_full"] = (held - rest) / (full - rest);
  json["memory_over_full"] = json["budget"]["memory_bytes"].get<double>() / json["full"]["memory_bytes"].get<double>();
  std::cout << fmt::format(
      "step 1's model, selective attention, one stream: {} rows {:.3f} ms a token, budget of {} {:.3f} ms, without "
      "attention {:.3f} ms\n  attention under the budget / full: {:.2f}; memory {:.2f}\n",
      rows, full, budget, held, rest, json["attention_over_full"].get<double>(),
      json["memory_over_full"].get<double>());
  return json;
}

/// Every baseline that needs no training, under two budgets and with room for all rows.
Json baselines(const Common& common, const Options& options) {
  const int64_t rows = all_rows(common);
  Json json;
  for (const auto& entry : method_table()) {
    if (!entry.options()->adopts()) continue;
    std::vector<Case> cases;
    for (const int64_t budget : {rows / 16, rows / 4, rows})
      cases.push_back({std::to_string(budget), entry.name, rows, budget});
    json[entry.name] = decode(common, options, cases);
    std::cout << entry.name << ", ms a token with rows of";
    for (const auto& [budget, result] : json[entry.name].items())
      std::cout << fmt::format(" {}: {:.2f}", budget, result["ms"].get<double>());
    std::cout << '\n';
  }
  return json;
}

Json run(const Common& common, const Options& options) {
  return {{"adaptive_step", steps(common, options)},
          {"budget", budgets(common, options)},
          {"baselines", baselines(common, options)}};
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"methods", "Times methods beside each other; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--updates", options.updates, "timed updates").check(whole_number(1, 100000)).shows_default();
    app.add_option("--window", options.window, "timed tokens").check(whole_number(8, 100000)).shows_default();
  };
  program.run = [&](const Common& common) { return run(common, options); };
  return run_program(program, argc, argv);
}
