// Resident memory over many updates of a model whose memories are ragged and change their sizes with every block.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "bench/library_step.h"
#include "bench/program.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Options {
  int64_t updates = 2000;
  std::string precision = "float32";
};

const StepShape kShape = {"memory", 3, 96, 192, 4, 32, 4, 64, 256, 16, 64};

/// Spans e = L sigmoid(w x + b) that differ between rows, and in their mean between layers and updates: from nearly
/// nothing to nearly all of L.
void draw_spans(Transformer& model, Random& random) {
  for (auto& [name, parameter] : model.parameters()) {
    if (!of_spans(name)) continue;
    Tensor values = parameter->detach();
    for (int64_t i = 0; i < values.numel(); ++i)
      values[i].fill_(name.ends_with("bias") ? 5 * random.uniform() - 3.5 : 0.1 * random.normal());
  }
  model.after_update();
}

/// How far the tables' sizes go, and how many of them there are.
class Sizes {
 public:
  void see(const ModelMemory& memory) {
    for (const auto& table : memory.layers) {
      sizes_.push_back(table.rows());
      for (int64_t b = 0; b < table.samples(); ++b) ragged_ |= table.rows_of(b) != table.rows_of(0);
    }
  }
  Json json() {
    std::sort(sizes_.begin(), sizes_.end());
    const auto end = std::unique(sizes_.begin(), sizes_.end());
    if (end - sizes_.begin() < 4 || !ragged_) fail("the memories' sizes do not change, or are not ragged");
    return {{"least", sizes_.front()}, {"most", *(end - 1)}, {"distinct", end - sizes_.begin()}};
  }

 private:
  std::vector<int64_t> sizes_;
  bool ragged_ = false;
};

Json run(const Common& common, const Options& options) {
  const int64_t every = common.quick ? 5 : 100, updates = common.quick ? 20 : options.updates;
  LibraryStep step(kShape, options.precision);
  Random random(1, "spans");
  Sizes sizes;
  Json results = Json::array();
  int64_t base = 0, largest = 0;
  std::cout << fmt::format("{:>8} {:>10} {:>8}\n", "update", "resident", "rows");
  for (int64_t update = 1; update <= updates; ++update) {
    draw_spans(step.model(), random);
    const Tensor tokens = random_tokens(kShape, kShape.block + 1);
    step.update(tokens.narrow(1, 0, kShape.block), tokens.narrow(1, 1, kShape.block));
    sizes.see(step.memory());
    const int64_t resident = resident_memory();
    if (update == every) base = resident;
    if (update > every) largest = std::max(largest, resident);
    if (update % every != 0) continue;
    results.push_back({{"update", update}, {"resident_memory", resident}});
    std::cout << fmt::format("{:>8} {:>7.1f} MB {:>8}\n", update, static_cast<double>(resident) * 1e-6,
                             step.memory().layers[0].rows())
              << std::flush;
  }
  const double ratio = static_cast<double>(largest) / static_cast<double>(base);
  const Json rows = sizes.json();
  std::cout << fmt::format("largest after update {} / at it: {:.3f}; tables of {} to {} rows, {} sizes\n", every, ratio,
                           rows["least"].get<int64_t>(), rows["most"].get<int64_t>(), rows["distinct"].get<int64_t>());
  return {{"precision", options.precision},
          {"rows", rows},
          {"results", results},
          {"first", every},
          {"largest_over_first", ratio}};
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"memory", "Follows resident memory over many updates; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--updates", options.updates, "updates, at least 200")
        .check(whole_number(200, 100000000))
        .shows_default();
    add_precision(app, options.precision);
  };
  program.run = [&](const Common& common) { return run(common, options); };
  return run_program(program, argc, argv);
}
