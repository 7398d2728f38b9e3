// What the tests of the model share: tiny models of any method, whose memories live for different times.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lapse/forgetting/registry.h"
#include "lapse/model/transformer.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {

constexpr int64_t kVocabulary = 11, kBlock = 8;

using Settings = std::map<std::string, std::string>;

inline void set_fields(const Fields& fields, const Settings& settings) {
  for (const auto& field : fields)
    if (const auto found = settings.find(field.name); found != settings.end())
      set_field(field, found->second, field.name);
}

/// A method's options; settings that it does not have are passed over. Memories live for 5 blocks at most, unless the
/// settings say otherwise.
inline std::unique_ptr<MethodOptions> method_options(const std::string& name, Settings settings = {}) {
  settings.insert({{"max_span", "33"},
                   {"every", "2"},
                   {"ramp", "6.5"},
                   {"loss", "0.01"},
                   {"size", "12"},
                   {"rate", "3"},
                   {"window", "20"},
                   {"stride", "5"},
                   {"budget", "16"}});
  auto options = find_method(name).options();
  set_fields(options->fields(), settings);
  return options;
}

inline ModelConfig tiny_config(const std::string& norm) {
  ModelConfig config;
  config.width = 12, config.layers = 2, config.heads = 3, config.feed_forward = 16, config.norm = norm;
  return config;
}

/// What memory holds while weights learn, or are read only.
inline Stored stored_of(bool training) { return training ? Stored::inputs : Stored::projections; }

/// Spans over the whole range, many of them short, where the method learns them; what else a method learns from 0 on,
/// at random.
inline void vary_spans(Transformer& model, Random random) {
  for (auto& layer : model.layers())
    for (auto& [name, tensor] : layer.attention().method().parameters()) {
      at::Tensor values = tensor->detach().flatten();
      if (name.find("span.") != std::string::npos || values.count_nonzero().item<int64_t>() > 0) continue;
      for (int64_t i = 0; i < values.numel(); ++i) values[i].fill_(0.5 * random.normal());
    }
  for (auto& [name, tensor] : model.parameters()) {
    if (name.ends_with("span.fraction")) {
      at::Tensor values = tensor->detach();
      for (int64_t i = 0; i < values.numel(); ++i) values[i].fill_(0.7 * random.uniform());
    }
    const bool weight = name.ends_with("span.weight");
    if (!weight && !name.ends_with("span.bias")) continue;
    at::Tensor values = tensor->detach();
    for (int64_t i = 0; i < values.numel(); ++i) values[i].fill_(weight ? 0.5 * random.normal() : -0.7);
  }
}

inline std::unique_ptr<Transformer> tiny_model(const ModelConfig& config, const MethodOptions& options,
                                               at::ScalarType type, uint64_t seed = 1) {
  auto model = std::make_unique<Transformer>(config, options, kVocabulary, kBlock, Random(seed, "weights"));
  vary_spans(*model, Random(seed, "spans"));
  model->to(type);
  return model;
}

inline at::Tensor random_tokens(int64_t streams, int64_t length, uint64_t seed = 1) {
  Random random(seed, "tokens");
  at::Tensor tokens = at::full({streams, length}, 0, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data_ptr<int64_t>()[i] = static_cast<int64_t>(random.below(kVocabulary));
  return tokens;
}

/// The log-probabilities [B, sum of lengths, V] of the next blocks, in blocks of the given lengths. Without gradients.
inline at::Tensor run(Transformer& model, ModelMemory& memory, const at::Tensor& tokens,
                      const std::vector<int64_t>& lengths) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  int64_t from = 0;
  for (const int64_t length : lengths) {
    const auto y = model.forward(tokens.narrow(1, from, length), memory, {});
    all.push_back(at::log_softmax(y.logits, 2));
    from += length;
  }
  return lapse::cat(all, 1);
}

inline at::Tensor run(Transformer& model, bool training, const at::Tensor& tokens,
                      const std::vector<int64_t>& lengths) {
  ModelMemory memory = model.begin(tokens.size(0), stored_of(training));
  return run(model, memory, tokens, lengths);
}

/// The largest difference relative to the largest expected value; infinite for NaN.
inline double difference(const at::Tensor& got, const at::Tensor& expected) {
  const double largest = expected.abs().max().item<double>(), worst = (got - expected).abs().max().item<double>();
  return std::isfinite(worst) ? (largest > 0 ? worst / largest : worst) : INFINITY;
}

}  // namespace lapse
