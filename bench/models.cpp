#include "bench/models.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "lapse/core/error.h"
#include "lapse/forgetting/registry.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {
namespace {

// Below e = M + 1 - R, far more than float32 rounds sigmoid by and far less than a timestep: at age M + 1 m is 0.
constexpr double kBelow = 0.01;

constexpr double kFactor = 4;  // adaptive.factor

void set_fields(const Fields& fields, const Settings& settings) {
  for (const auto& [name, value] : settings) {
    bool found = false;
    for (const auto& field : fields)
      if (field.name == name) set_field(field, value, name), found = true;
    if (!found) fail(fmt::format("the library has no setting '{}'", name));
  }
}

ModelConfig model_config(const StepShape& shape) {
  ModelConfig config;
  config.width = shape.width, config.layers = shape.layers, config.heads = shape.heads;
  config.feed_forward = shape.feed_forward;
  if (shape.cutoffs) config.input = config.output = "adaptive", config.adaptive.cutoffs = *shape.cutoffs;
  return config;
}

/// b of e = L sigmoid(w x + b) with w = 0.
double span_bias(const StepShape& shape) {
  const double e = static_cast<double>(shape.memory + 1 - shape.ramp) - kBelow, L = static_cast<double>(shape.max_span);
  return std::log(e / (L - e));
}

}  // namespace

StepShape step_shape(const std::string& name, bool quick) {
  const std::vector<StepShape> shapes = {
      {"1", 8, 256, 1024, 4, 256, 8, 512, 4096, 64, 205, 147},
      {"2", 4, 128, 512, 4, 128, 16, 256, 1024, 32, 256, 18.7},
      {"3", 12, 512, 2048, 8, 512, 2, 4608, 16384, 128, 205, 935},
      {"4", 6, 512, 2048, 8, 256, 16, 1024, 4096, 64, 8192, 1018},
      {"5", 8, 1024, 4096, 8, 256, 4, 1024, 8192, 128, 267735, 1193, {{20000, 40000, 200000}}},
  };
  for (StepShape shape : shapes) {
    if (shape.name != name) continue;
    if (!quick) return shape;
    StepShape tiny = tiny_shape();
    tiny.name = name;
    if (shape.cutoffs) tiny.cutoffs = {{4, 8}};
    return tiny;
  }
  fail(fmt::format("there is no step '{}', only 1 to 5", name));
}

StepShape tiny_shape() { return {"tiny", 4, 32, 64, 2, 8, 2, 24, 64, 4, 11}; }

double output_flops(const StepShape& s) {
  const auto d = static_cast<double>(s.width), V = static_cast<double>(s.vocabulary);
  std::vector<int64_t> edges = s.cutoffs.value_or(std::vector<int64_t>());
  edges.push_back(s.vocabulary);
  double each = d * static_cast<double>(edges[0] + std::ssize(edges) - 1), width = d;
  for (size_t i = 1; i < edges.size(); ++i) {
    const auto begin = static_cast<double>(edges[i - 1]), end = static_cast<double>(edges[i]);
    width /= kFactor;
    each += std::log(end / begin) / std::log(V) * width * (d + end - begin);
  }
  return 6 * static_cast<double>(s.tokens()) * each;
}

double step_flops(const StepShape& s) {
  const auto d = static_cast<double>(s.width), ff = static_cast<double>(s.feed_forward);
  const auto K = static_cast<double>(s.block), B = static_cast<double>(s.batch), M = static_cast<double>(s.memory);
  const double rows = B * K, detached = B * M;
  const double q_out_ff = 6 * rows * (2 * d * d + 2 * d * ff);
  const double key_value = (6 * rows + 4 * detached) * 2 * d * d;
  const double attention = d * (14 * rows * (M + K) + 6 * rows * K);  // d = H D
  const double output = output_flops(s);
  const double flops = static_cast<double>(s.layers) * (q_out_ff + key_value + attention) + output;
  if (s.gflop > 0 && std::abs(flops * 1e-9 / s.gflop - 1) > 0.01)
    fail(fmt::format("step {}: {:.1f} GFLOP by the formula, but {} are stated", s.name, flops * 1e-9, s.gflop));
  return flops;
}

Transformer make_model(const StepShape& shape, const std::string& method, const Settings& settings,
                       const Settings& evaluation) {
  const auto options = find_method(method).options();
  set_fields(options->fields(), settings);
  set_fields(options->reading_fields(), evaluation);
  return Transformer(model_config(shape), *options, shape.vocabulary, shape.block, Random(1, "weights"));
}

Transformer make_model(const StepShape& shape) {
  Transformer model = make_model(shape, "expire_span",
                                 {{"max_span", std::to_string(shape.max_span)},
                                  {"ramp", std::to_string(shape.ramp)},
                                  {"loss", fmt::format("{}", kSpanLoss)},
                                  {"divide", "input"},
                                  {"divisor", "1"}});
  for (auto& [name, parameter] : model.parameters())
    if (of_spans(name)) parameter->detach().fill_(name.ends_with("bias") ? span_bias(shape) : 0);
  model.after_update();
  return model;
}

bool of_spans(const std::string& parameter) { return parameter.find(".span.") != std::string::npos; }

at::Tensor random_tokens(const StepShape& shape, int64_t length) {
  if (!shape.cutoffs) return at::randint(shape.vocabulary, {shape.batch, length}, at::kLong);
  const auto V = static_cast<double>(shape.vocabulary);
  return (at::rand({shape.batch, length}, at::kDouble) * std::log(V)).exp().to(at::kLong).clamp_(1, shape.vocabulary) -
         1;
}

void require_rows(const Transformer& model, const ModelMemory& memory, int64_t rows) {
  for (size_t l = 0; l < memory.layers.size(); ++l) {
    const auto& table = memory.layers[l];
    const at::Tensor alive = model.layers()[l].attention().alive(table, memory.clock);
    const at::Tensor counts = at::bincount(table.sample().masked_select(alive), {}, table.samples());
    const auto least = counts.min().item<int64_t>(), most = counts.max().item<int64_t>();
    if (least != rows || most != rows)
      fail(fmt::format("layer {} remembers {} to {} rows of a sample where the benchmark wants {}", l, least, most,
                       rows));
  }
}

}  // namespace lapse::bench
