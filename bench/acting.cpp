// Many streams that are read one token at a time, divided among threads, as agents act: time per token of all streams
// of a thread, and of the block that learns from what they read.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bench/models.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Options {
  int64_t updates = 10;
  std::string only;
  bool act = true, learn = true;
};

/// Streams before a method, whose queries read about `seen` rows.
struct Case {
  std::string name, method;
  int64_t streams, max_span, seen;
  Settings settings;
};

std::vector<Case> cases() {
  const auto expire = [](int64_t L) { return Settings{{"max_span", std::to_string(L)}, {"ramp", "16"}}; };
  return {
      {"expire_span, 5 rows", "expire_span", 64, 200, 5, expire(200)},
      {"expire_span, 150 rows", "expire_span", 64, 200, 150, expire(200)},
      {"fixed_span, 200 rows", "fixed_span", 64, 200, 200, {{"max_span", "200"}}},
      {"expire_span, 5 rows, 1024", "expire_span", 1024, 100, 5, expire(100)},
      {"expire_span, 80 rows, 1024", "expire_span", 1024, 100, 80, expire(100)},
      {"selective_attention", "selective_attention", 64, 200, 200, {{"max_span", "200"}}},
      {"compressive", "compressive", 64, 100, 100, {{"max_span", "100"}, {"size", "100"}}},
  };
}

/// Two layers of width 64 before blocks of 100, the model of the corridor in the Expire-Span paper.
StepShape shape_of(const Case& c, bool quick) {
  StepShape shape{"acting", 2, 64, 256, 4, 100, c.streams, 0, c.max_span, 16, 16};
  if (quick) shape.block = 10, shape.batch = 8;
  return shape;
}

/// The streams of one thread.
struct Share {
  ModelMemory inputs;  ///< what blocks left
  ModelMemory memory;  ///< the same projected, to act with
  Tensor tokens;       ///< [B, K]: of the next block
};

class Acting {
 public:
  Acting(const Case& c, bool quick) : shape_(shape_of(c, quick)), model_(make_model(shape_, c.method, c.settings)) {
    set_spans(c);
    const int64_t threads = at::get_num_threads();
    for (int64_t t = 0; t < threads; ++t) {
      StepShape own = shape_;
      own.batch = shape_.batch * (t + 1) / threads - shape_.batch * t / threads;
      Share share{model_.begin(own.batch, Stored::inputs), {}, {}};
      const at::NoGradGuard no_grad;
      for (int64_t read = 0; read < 2 * c.max_span; read += shape_.block)
        model_.forward(random_tokens(own, shape_.block), share.inputs, {});
      share.tokens = random_tokens(own, shape_.block);
      shares_.push_back(std::move(share));
    }
  }

  /// As at the start of an update: memory of projections.
  void project() {
    const at::NoGradGuard no_grad;
    for (auto& share : shares_) {
      share.memory = model_.projected(share.inputs);
      share.memory.reserve(shape_.block);
    }
  }

  /// K tokens of every stream, one by one; each thread for its own streams alone.
  void act() {
    at::parallel_for(0, std::ssize(shares_), 1, [&](int64_t begin, int64_t end) {
      const at::NoGradGuard no_grad;
      for (int64_t s = begin; s < end; ++s)
        for (int64_t i = 0; i < shape_.block; ++i)
          model_.forward(shares_[s].tokens.narrow(1, i, 1), shares_[s].memory, {});
    });
  }

  /// The block that all streams have read: forward with gradients, and backward.
  void learn() {
    for (auto& share : shares_) {
      ModelMemory memory = share.inputs;
      const auto y = model_.forward(share.tokens, memory, {.target = share.tokens});
      (y.likelihood.nats / y.likelihood.scored + y.cost).backward();
    }
  }

  int64_t steps() const { return shape_.block; }
  int64_t streams() const { return shape_.batch; }
  double rows() const {
    double rows = 0;
    for (const auto& share : shares_) rows += static_cast<double>(share.inputs.layers[0].rows());
    return rows / static_cast<double>(shape_.batch);
  }

 private:
  /// Every span is such that `seen` rows are read.
  void set_spans(const Case& c) {
    const double e = std::max(1., static_cast<double>(c.seen) - 15), odds = e / (static_cast<double>(c.max_span) - e);
    for (auto& [name, parameter] : model_.parameters())
      if (of_spans(name)) parameter->detach().fill_(name.ends_with("bias") ? std::log(odds) : 0);
  }

  StepShape shape_;
  Transformer model_;
  std::vector<Share> shares_;
};

Json run(const Common& common, const Options& options) {
  Json json = {{"results", Json::array()}};
  std::cout << fmt::format("{:<28}{:>8}{:>12}{:>14}{:>14}{:>12}\n", "case", "rows", "project ms", "us per step",
                           "steps/s", "learn ms");
  for (const auto& c : cases()) {
    if (c.name.find(options.only) == std::string::npos) continue;
    Acting acting(c, common.quick);
    std::vector<double> project, act, learn;
    for (int64_t i = 0; i < (common.quick ? 1 : options.updates + 1); ++i) {
      if (options.act) {
        project.push_back(seconds([&] { acting.project(); }));
        act.push_back(seconds([&] { acting.act(); }));
      }
      if (options.learn) learn.push_back(seconds([&] { acting.learn(); }));
    }
    const double steps = static_cast<double>(acting.steps());
    const double project_ms = project.empty() ? 0 : 1e3 * median(project);
    const double us = act.empty() ? 0 : 1e6 * median(act) / steps,
                 rate = us > 0 ? static_cast<double>(acting.streams()) * 1e6 / us : 0;
    const double learn_ms = learn.empty() ? 0 : 1e3 * median(learn);
    std::cout << fmt::format("{:<28}{:>8.0f}{:>12.2f}{:>14.1f}{:>14.0f}{:>12.1f}\n", c.name, acting.rows(), project_ms,
                             us, rate, learn_ms)
              << std::flush;
    json["results"].push_back({{"case", c.name},
                               {"streams", acting.streams()},
                               {"rows", acting.rows()},
                               {"project_ms", project_ms},
                               {"us_per_step", us},
                               {"steps_per_second", rate},
                               {"learn_ms", learn_ms}});
  }
  return json;
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"acting", "Times reading many streams one token at a time; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--updates", options.updates, "how often a block is read token by token")
        .check(whole_number(1, 100000))
        .shows_default();
    app.add_option("--only", options.only, "only cases whose names contain this");
    app.add_flag("--act,!--no-act", options.act, "time the tokens read one by one");
    app.add_flag("--learn,!--no-learn", options.learn, "also time the block that learns");
  };
  program.run = [&](const Common& common) { return run(common, options); };
  return run_program(program, argc, argv);
}
