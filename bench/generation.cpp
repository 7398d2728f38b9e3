// Decoding one stream, token by token: time per token at growing numbers of tokens seen, against eager PyTorch.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "bench/eager_decode.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/ops/vector.h"

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
  explicit Stream(const StepShape& shape, bool bfloat16 = false) : shape_(shape), model_(make_model(shape)) {
    if (bfloat16) model_.to_bfloat16();
    memory_ = model_.begin(1, false);
  }

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

/// Error if a small model's logits differ between the library and the eager decoder in float32, from the first token on
/// and beyond the end of its memory.
void check_decoding(bool bfloat16) {
  // Of the largest logit, through all layers; bfloat16 rounds to 2^-9, once or twice in each of some ten products.
  const double kTolerance = bfloat16 ? 0.05 : 1e-4;
  const StepShape shape = decode_shape(/*quick=*/true);
  Stream stream(shape, bfloat16);
  EagerDecoder eager(shape, make_model(shape).parameters());
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

/// What a token at least reads: the matrices of layers and output, and every row's key and value; in numbers.
int64_t numbers_read(const StepShape& shape, Transformer& model) {
  int64_t numbers = shape.layers * shape.memory * 2 * shape.width;
  for (const auto& [name, parameter] : model.parameters())
    if (parameter->dim() == 2 && name != "embedding" && name != "position") numbers += parameter->numel();
  return numbers;
}

/// Reads so many bytes in order, on all cores, and does nothing else: the bound that memory sets.
std::function<void()> reading(int64_t bytes) {
  constexpr int64_t kPiece = 1 << 14;
  const Tensor x = at::ones({std::max<int64_t>(bytes / 4 / kPiece, 1), kPiece});
  return [x, sums = std::vector<float>(x.size(0))]() mutable {
    const auto* from = x.const_data_ptr<float>();
    at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] = dot(from + i * kPiece, from + i * kPiece, kPiece);
    });
  };
}

/// One way to decode a token, or the reading that it cannot avoid.
struct Decoder {
  std::string name;
  std::function<void(const Tensor& token)> next;
};

/// Median milliseconds of single tokens, in turns of a quarter of the window so that a disturbance hits all alike.
Json decode(const StepShape& shape, const std::vector<Decoder>& decoders, int64_t window) {
  std::map<std::string, std::vector<double>> times;
  for (int64_t turn = 0; turn < 4; ++turn)
    for (const auto& decoder : decoders)
      for (int64_t i = 0; i < std::max<int64_t>(window / 4, 1); ++i) {
        const Tensor token = random_tokens(shape, 1);
        times[decoder.name].push_back(seconds([&] { decoder.next(token); }));
      }
  Json json;
  for (const auto& decoder : decoders)
    json[decoder.name] = {{"ms", median(times[decoder.name]) * 1e3}, {"repeats", times[decoder.name].size()}};
  for (const char* name : {"fused", "fused_bf16"})
    json[std::string(name) + "_over_eager"] = json[name]["ms"].get<double>() / json["eager"]["ms"].get<double>();
  return json;
}

double slowest_over_fastest(const Json& results, const std::string& name) {
  double fastest = INFINITY, slowest = 0;
  for (const Json& point : results) {
    const double ms = point[name]["ms"];
    fastest = std::min(fastest, ms), slowest = std::max(slowest, ms);
  }
  return slowest / fastest;
}

Json run(const Common& common, const Options& options) {
  for (const bool bfloat16 : {false, true}) check_decoding(bfloat16);
  const StepShape shape = decode_shape(common.quick);
  const int64_t tokens = common.quick ? 100 : options.tokens, window = common.quick ? 4 : options.window;
  Stream stream(shape), half(shape, true);
  Transformer model = make_model(shape), rounded = make_model(shape);
  rounded.to(at::kBFloat16);
  EagerDecoder eager(shape, model.parameters()), eager_half(shape, rounded.parameters());
  const int64_t numbers = numbers_read(shape, model);
  const auto read = reading(4 * numbers), read_half = reading(2 * numbers);
  const std::vector<Decoder> decoders = {
      {"fused", [&](const Tensor& token) { stream.read(token); }},
      {"read", [&](const Tensor&) { read(); }},
      {"fused_bf16", [&](const Tensor& token) { half.read(token); }},
      {"read_bf16", [&](const Tensor&) { read_half(); }},
      {"eager", [&](const Tensor& token) { eager.next(token.item<int64_t>()); }},
      {"eager_bf16", [&](const Tensor& token) { eager_half.next(token.item<int64_t>()); }}};
  eager.fill(), eager_half.fill();
  for (int i = 0; i < (common.quick ? 1 : 10); ++i) eager.next(0), eager_half.next(0);

  std::cout << fmt::format("step 1's model, one stream, |C_t| = {}: {:.1f} MB to read for a token, in bf16 {:.1f}\n",
                           shape.memory, 4e-6 * static_cast<double>(numbers), 2e-6 * static_cast<double>(numbers))
            << fmt::format("{:>12}", "tokens seen");
  for (const auto& decoder : decoders) std::cout << fmt::format(" {:>10}", decoder.name);
  std::cout << fmt::format(" {:>12} {:>12} {:>10}\n", "fused/eager", "bf16/eager", "resident");
  Json results = Json::array();
  for (const int64_t seen : points(tokens, shape.memory)) {
    note(fmt::format("reading {} tokens", seen));
    for (Stream* each : {&stream, &half}) each->read_until(seen, options.one_by_one), each->require_full();
    Json point = {{"seen", stream.seen()}};
    point.update(decode(shape, decoders, window));
    point["resident_memory"] = resident_memory();
    std::cout << fmt::format("{:>12}", point["seen"].get<int64_t>());
    for (const auto& decoder : decoders)
      std::cout << fmt::format(" {:>10.3f}", point[decoder.name]["ms"].get<double>());
    std::cout << fmt::format(" {:>12.3f} {:>12.3f} {:>7.0f} MB\n", point["fused_over_eager"].get<double>(),
                             point["fused_bf16_over_eager"].get<double>(),
                             point["resident_memory"].get<double>() * 1e-6)
              << std::flush;
    results.push_back(point);
  }
  stream.require_full(), half.require_full();
  Json json = {{"memory", shape.memory}, {"megabytes_read", 4e-6 * static_cast<double>(numbers)}, {"results", results}};
  for (const char* name : {"fused", "fused_bf16"}) {
    const double ratio = slowest_over_fastest(results, name);
    std::cout << fmt::format("slowest point / fastest, {}: {:.3f}\n", name, ratio);
    json["slowest_over_fastest"][name] = ratio;
  }
  return json;
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
