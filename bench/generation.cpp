// Decoding one stream, token by token: time per token at growing numbers of tokens seen, against eager PyTorch.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "bench/eager_decode.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Options {
  int64_t tokens = 20000;
  int64_t window = 200;
  bool one_by_one = false;
};

/// A stream of the library's model, read as generate/generator.cpp does.
class Stream {
 public:
  explicit Stream(const StepShape& shape) : shape_(shape), model_(make_model(shape)), memory_(model_.begin(1, false)) {}

  Tensor read(const Tensor& tokens) {
    const at::NoGradGuard no_grad;
    seen_ += tokens.size(1);
    return model_.forward(tokens, memory_, {}).logits[0][-1];
  }

  /// Reads random tokens until `seen` of them are, in blocks or one by one.
  void read_until(int64_t seen, bool one_by_one) {
    while (seen_ < seen) read(random_tokens(shape_, one_by_one ? 1 : std::min(shape_.block, seen - seen_)));
  }

  /// Error unless |C_t|, the rows that the next query reads, is M in every layer.
  void require_full() const {
    for (size_t l = 0; l < memory_.layers.size(); ++l) {
      const Tensor alive = model_.layers()[l].alive(memory_.layers[l], memory_.clock);
      if (const auto rows = alive.sum().item<int64_t>(); rows != shape_.memory)
        fail(fmt::format("after {} tokens layer {} remembers {} rows, not {}", seen_, l, rows, shape_.memory));
    }
  }

  Transformer& model() { return model_; }
  int64_t seen() const { return seen_; }

 private:
  StepShape shape_;
  Transformer model_;
  ModelMemory memory_;
  int64_t seen_ = 0;
};

StepShape decode_shape(bool quick) {
  StepShape shape = quick ? tiny_shape() : step_shape("1", false);
  shape.batch = 1;
  if (!quick) shape.memory = 1000;
  return shape;
}

/// Error if a small model's logits differ between the library and the eager decoder, from the first token on and beyond
/// the end of its memory.
void check_decoding() {
  constexpr double kTolerance = 1e-4;  // of the largest logit; float32, through all layers
  const StepShape shape = decode_shape(/*quick=*/true);
  Stream stream(shape);
  EagerDecoder eager(shape, stream.model().parameters());
  for (int64_t i = 0; i < 3 * shape.memory; ++i) {
    const Tensor token = random_tokens(shape, 1), got = stream.read(token).detach();
    const Tensor expected = eager.next(token.item<int64_t>()).detach();
    const double worst = (got - expected).abs().max().item<double>();
    if (!(worst <= kTolerance * expected.abs().max().item<double>()))
      fail(fmt::format("token {}: the library's logits and the eager decoder's differ by {:.3g}", i, worst));
  }
  stream.require_full();
}

std::vector<int64_t> points(int64_t tokens, int64_t memory) {
  std::vector<int64_t> all;
  for (const int64_t seen : {memory, 5 * memory, 20 * memory, 200 * memory})
    if (seen < tokens) all.push_back(seen);
  all.push_back(std::max(tokens, memory));
  return all;
}

/// Times of single tokens, in turns of a quarter of the window so that a disturbance hits both alike.
Json decode(const StepShape& shape, Stream& stream, EagerDecoder& eager, int64_t window) {
  std::vector<double> fused_times, eager_times;
  for (int64_t i = 0; i < window; ++i) {
    const Tensor token = random_tokens(shape, 1);
    fused_times.push_back(seconds([&] { stream.read(token); }));
    if ((i + 1) % std::max<int64_t>(window / 4, 1) != 0) continue;
    for (int64_t j = 0; j < std::max<int64_t>(window / 4, 1); ++j)
      eager_times.push_back(seconds([&] { eager.next(token.item<int64_t>()); }));
  }
  const double fused_time = median(fused_times), eager_time = median(eager_times);
  return {{"fused", {{"ms", fused_time * 1e3}, {"repeats", fused_times.size()}}},
          {"eager", {{"ms", eager_time * 1e3}, {"repeats", eager_times.size()}}},
          {"fused_over_eager", fused_time / eager_time}};
}

Json run(const Common& common, const Options& options) {
  check_decoding();
  const StepShape shape = decode_shape(common.quick);
  const int64_t tokens = common.quick ? 100 : options.tokens, window = common.quick ? 4 : options.window;
  Stream stream(shape);
  EagerDecoder eager(shape, make_model(shape).parameters());
  eager.fill();
  for (int i = 0; i < (common.quick ? 1 : 10); ++i) eager.next(0);

  std::cout << fmt::format("step 1's model, one stream, |C_t| = {}\n{:>12} {:>10} {:>10} {:>12} {:>10}\n", shape.memory,
                           "tokens seen", "ms", "eager ms", "fused/eager", "resident");
  Json results = Json::array();
  double fastest = INFINITY, slowest = 0;
  for (const int64_t seen : points(tokens, shape.memory)) {
    note(fmt::format("reading {} tokens", seen));
    stream.read_until(seen, options.one_by_one);
    stream.require_full();
    Json point = {{"seen", stream.seen()}};
    point.update(decode(shape, stream, eager, window));
    point["resident_memory"] = resident_memory();
    const double ms = point["fused"]["ms"];
    fastest = std::min(fastest, ms), slowest = std::max(slowest, ms);
    std::cout << fmt::format("{:>12} {:>10.3f} {:>10.3f} {:>12.3f} {:>7.0f} MB\n", point["seen"].get<int64_t>(), ms,
                             point["eager"]["ms"].get<double>(), point["fused_over_eager"].get<double>(),
                             point["resident_memory"].get<double>() * 1e-6)
              << std::flush;
    results.push_back(point);
  }
  stream.require_full();
  std::cout << fmt::format("slowest point / fastest: {:.3f}\n", slowest / fastest);
  return {{"memory", shape.memory}, {"results", results}, {"slowest_over_fastest", slowest / fastest}};
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"generation", "Times decoding, token by token; see bench/README.md"};
  program.add_options = [&](CLI::App& app) {
    app.add_option("--tokens", options.tokens, "tokens seen at the last point, at least 1000; 200000 for the long run")
        ->check(CLI::Range(1000, 100000000))
        ->capture_default_str();
    app.add_option("--window", options.window, "tokens timed at each point")
        ->check(CLI::Range(4, 100000))
        ->capture_default_str();
    app.add_flag("--one-by-one", options.one_by_one, "read the tokens between the points one by one, not in blocks");
  };
  program.run = [&](const Common& common) { return run(common, options); };
  return run_program(program, argc, argv);
}
