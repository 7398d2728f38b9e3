// What the tests on a second device share: tiny models of every method.
#pragma once

#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/second_device_testing.h"
#include "lapse/train/learner.h"

namespace lapse {

constexpr int64_t kStreams = 3;

struct Kind {
  std::string method, norm;
  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.method << ", " << kind.norm; }
};

inline std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const auto& entry : method_table())
    for (const char* norm : {"post", "pre"}) all.push_back({entry.name, norm});
  return all;
}

class SecondDeviceModel : public testing::TestWithParam<Kind> {
 protected:
  static Transformer model(const at::Device& device, int64_t layers = 2) {  // or 5
    ModelConfig config = tiny_config(GetParam().norm);
    config.layers = layers;
    config.dropout = 0.1;
    Settings settings = {
        {"loss", "0.01"}, {"memory_loss", "0.1"}, {"random_drop", "true"}, {"budget", "6"}, {"max_span", "13"}};
    if (config.norm == "pre") {
      config.input = config.output = "adaptive", config.adaptive = {.cutoffs = {4, 8}, .factor = 2};
      config.embedding_dropout = config.output_dropout = 0.1;
      config.norm_kind = "rms", config.activation = "swiglu", config.biases = false, config.normed_heads = true;
      settings.insert({{"separate", "true"},
                       {"budgets", layers == 2 ? "[12, 9]" : "[12, 9, 7, 12, 9]"},
                       {"initial_memory", "zeros"}});
    }
    Transformer model(config, *method_options(GetParam().method, settings), kVocabulary, kBlock, Random(1, "weights"));
    vary_spans(model, Random(1, "spans"));
    model.to(device);
    return model;
  }

  static std::vector<Update> train(Learner& learner) {
    std::vector<Update> updates;
    for (uint64_t i = 0; i < 3; ++i) {
      const at::Tensor tokens = random_tokens(kStreams, kBlock + 1, i);
      at::Tensor target = tokens.narrow(1, 1, kBlock).clone();
      if (i == 1) target.narrow(1, 2, 3).fill_(kNoTarget);
      updates.push_back(learner.update(Batch(tokens.narrow(1, 0, kBlock), target), /*observe=*/true));
    }
    return updates;
  }
};

}  // namespace lapse
