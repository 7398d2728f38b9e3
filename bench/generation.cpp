// Decoding one stream, token by token: time per token after growing numbers of tokens seen, in float32 and bfloat16,
// against eager PyTorch and against the bare reading of what a token must read.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/eager_decode.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/matrix_passes.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Options {
  int64_t tokens = 20000;
  int64_t window = 400;
  bool one_by_one = false;
};

/// A stream of the library's model, read as generate/generator.cpp does. Copies share the model.
class Stream {
 public:
  explicit Stream(const StepShape& shape, bool bfloat16 = false)
      : shape_(shape), model_(std::make_shared<Transformer>(make_model(shape))) {
    if (bfloat16) model_->to_bfloat16();
    memory_ = model_->begin(1, Stored::projections);
  }

  Tensor read(const Tensor& tokens) {
    const at::NoGradGuard no_grad;
    seen_ += tokens.size(1);
    return model_->forward(tokens, memory_, {}).logits[0][-1];
  }

  /// Reads random tokens until `seen` of them are, in blocks or one by one.
  void read_until(int64_t seen, bool one_by_one) {
    while (seen_ < seen) read(random_tokens(shape_, one_by_one ? 1 : std::min(shape_.block, seen - seen_)));
  }

  /// Error unless |C_t|, the rows that the next query reads, is M in every layer.
  void require_full() const {
    for (size_t l = 0; l < memory_.layers.size(); ++l) {
      const Tensor alive = model_->layers()[l].attention().alive(memory_.layers[l], memory_.clock);
      if (const auto rows = alive.sum().item<int64_t>(); rows != shape_.memory)
        fail(fmt::format("after {} tokens layer {} remembers {} rows, not {}", seen_, l, rows, shape_.memory));
    }
  }

  int64_t seen() const { return seen_; }

 private:
  StepShape shape_;
  std::shared_ptr<Transformer> model_;
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
  Transformer model = make_model(shape);
  EagerDecoder eager(shape, model.parameters());
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
  int64_t seen;  // 0: what was seen before makes no difference
  std::function<void(const Tensor& token)> next;
};

/// Median milliseconds of single tokens, in turns of a tenth of the window so that a disturbance hits all alike.
std::vector<double> decode(const StepShape& shape, const std::vector<Decoder>& decoders, int64_t window) {
  constexpr int64_t kTurns = 10;
  std::vector<std::vector<double>> times(decoders.size());
  for (int64_t turn = 0; turn < kTurns; ++turn)
    for (size_t d = 0; d < decoders.size(); ++d)
      for (int64_t i = 0; i < std::max<int64_t>(window / kTurns, 1); ++i) {
        const Tensor token = random_tokens(shape, 1);
        times[d].push_back(1e3 * seconds([&] { decoders[d].next(token); }));
      }
  std::vector<double> medians;
  for (const auto& each : times) medians.push_back(median(each));
  return medians;
}

/// Streams of both precisions as they were at each of the points.
std::vector<std::pair<std::string, Stream>> streams_at(const std::vector<int64_t>& points, const StepShape& shape,
                                                       bool one_by_one) {
  std::vector<std::pair<std::string, Stream>> all;
  for (const char* name : {"fused", "fused_bf16"}) {
    Stream stream(shape, name != std::string("fused"));
    for (const int64_t seen : points) {
      note(fmt::format("{}: reading {} tokens", name, seen));
      stream.read_until(seen, one_by_one);
      stream.require_full();
      all.emplace_back(name, stream);
    }
  }
  return all;
}

/// The table, and the same as JSON.
Json report(const std::vector<Decoder>& decoders, const std::vector<double>& ms) {
  Json json = {{"results", Json::array()}};
  double eager = 0;
  std::map<std::string, std::pair<double, double>> range;  // least and largest
  for (size_t d = 0; d < decoders.size(); ++d) {
    if (decoders[d].name == "eager") eager = ms[d];
    auto& [least, largest] = range.try_emplace(decoders[d].name, ms[d], ms[d]).first->second;
    least = std::min(least, ms[d]), largest = std::max(largest, ms[d]);
  }
  std::cout << fmt::format("{:<12}{:>12}{:>10}{:>12}\n", "path", "tokens seen", "ms", "of eager's");
  for (size_t d = 0; d < decoders.size(); ++d) {
    const auto& [name, seen, next] = decoders[d];
    std::cout << fmt::format("{:<12}{:>12}{:>10.3f}{:>12.3f}\n", name, seen == 0 ? "" : std::to_string(seen), ms[d],
                             ms[d] / eager);
    json["results"].push_back({{"path", name}, {"seen", seen}, {"ms", ms[d]}, {"over_eager", ms[d] / eager}});
  }
  for (const char* name : {"fused", "fused_bf16"}) {
    const double ratio = range.at(name).second / range.at(name).first;
    std::cout << fmt::format("slowest point / fastest, {}: {:.3f}\n", name, ratio);
    json["slowest_over_fastest"][name] = ratio;
  }
  return json;
}

Json run(const Common& common, const Options& options) {
  for (const bool bfloat16 : {false, true}) check_decoding(bfloat16);
  const StepShape shape = decode_shape(common.quick);
  const int64_t tokens = common.quick ? 100 : options.tokens;
  auto streams = streams_at(points(tokens, shape.memory), shape, options.one_by_one);
  Transformer model = make_model(shape), rounded = make_model(shape);
  rounded.to(at::kBFloat16);
  EagerDecoder eager(shape, model.parameters()), eager_half(shape, rounded.parameters());
  eager.fill(), eager_half.fill();
  const int64_t numbers = numbers_read(shape, model);
  const auto read = reading(4 * numbers), read_half = reading(2 * numbers);

  std::vector<Decoder> decoders;
  for (auto& [name, stream] : streams)
    decoders.push_back({name, stream.seen(), [&stream](const Tensor& token) { stream.read(token); }});
  decoders.push_back({"read", 0, [&](const Tensor&) { read(); }});
  decoders.push_back({"read_bf16", 0, [&](const Tensor&) { read_half(); }});
  decoders.push_back({"eager", 0, [&](const Tensor& token) { eager.next(token.item<int64_t>()); }});
  decoders.push_back({"eager_bf16", 0, [&](const Tensor& token) { eager_half.next(token.item<int64_t>()); }});

  const double megabytes = 4e-6 * static_cast<double>(numbers);
  std::cout << fmt::format("step 1's model, one stream, |C_t| = {}: {:.1f} MB to read for a token, in bf16 {:.1f}\n",
                           shape.memory, megabytes, megabytes / 2)
            << std::flush;
  decode(shape, decoders, common.quick ? 1 : 20);  // to warm up
  const auto ms = decode(shape, decoders, common.quick ? 1 : options.window);
  for (const auto& [name, stream] : streams) stream.require_full();
  Json json = {{"memory", shape.memory}, {"megabytes_read", megabytes}, {"window", options.window}};
  json.update(report(decoders, ms));
  return json;
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"generation", "Times decoding, token by token; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    app.add_option("--tokens", options.tokens, "tokens seen at the last point, at least 1000; 200000 for the long run")
        .check(whole_number(1000, 100000000))
        .shows_default();
    app.add_option("--window", options.window, "tokens timed of each path")
        .check(whole_number(4, 100000))
        .shows_default();
    app.add_flag("--one-by-one", options.one_by_one, "read the tokens between the points one by one, not in blocks");
  };
  program.run = [&](const Common& common) { return run(common, options); };
  return run_program(program, argc, argv);
}
