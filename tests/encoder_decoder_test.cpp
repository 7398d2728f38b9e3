// Models with an encoder: reading token by token, padding, gradients, and that every forgetting method learns in one.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/forgetting/registry.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/train/learner.h"

namespace lapse {
namespace {

using at::Tensor;

ModelConfig t5_config() {
  ModelConfig config = tiny_config("pre");
  config.encoder_layers = 2, config.attend_self = true, config.biases = false, config.scaled_logits = false;
  config.norm_kind = "rms", config.norm_epsilon = 1e-6, config.positions = "buckets";
  config.initialisation = "normal", config.output = "tied";
  return config;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& entry : method_table()) names.push_back(entry.name);
  return names;
}

Tensor lengths_of(std::vector<int64_t> lengths) { return at::tensor(lengths, at::kLong); }

class EncoderDecoder : public testing::TestWithParam<std::string> {};

// Decoding step by step equals teacher forcing, whatever the decoder forgets.
TEST_P(EncoderDecoder, ReadsTokenByTokenAsAtOnce) {
  const auto options = method_options(GetParam());
  const auto model = tiny_model(t5_config(), *options, at::kDouble);
  const Tensor source = random_tokens(2, 9, 2), target = random_tokens(2, 13, 3);
  at::NoGradGuard no_grad;
  const auto read = [&](Stored stored, int64_t step) {
    ModelMemory memory = model->begin(2, stored);
    std::vector<Tensor> logits;
    for (int64_t i = 0; i < target.size(1); i += step) {
      const int64_t n = std::min(step, target.size(1) - i);
      BlockOptions how{.exact = true};
      if (i == 0 || stored == Stored::inputs) how.source = source, how.source_lengths = lengths_of({9, 4});
      logits.push_back(model->forward(target.narrow(1, i, n), memory, how).logits);
    }
    return lapse::cat(logits, 1);
  };
  const Tensor whole = read(Stored::projections, 13);
  for (const int64_t step : {1, 4}) EXPECT_LT(difference(read(Stored::projections, step), whole), 1e-12) << step;
  // In training, rows whose attention decides what is read later are all there.
  if (model->layers()[0].attention().method().one_by_one()) return;
  EXPECT_LT(difference(read(Stored::inputs, 13), whole), 1e-12);
}

// Gradients of the likelihood along random directions, against differences.
TEST_P(EncoderDecoder, HasTheGradientsOfItsLoss) {
  const auto options = method_options(GetParam());
  ModelConfig config = t5_config();
  config.dropout = config.residual_dropout = config.embedding_dropout = config.output_dropout = 0.2;
  const auto model = tiny_model(config, *options, at::kDouble);
  const Tensor source = random_tokens(2, 7, 2), input = random_tokens(2, 6, 3), target = random_tokens(2, 6, 4);
  const BlockDraws draws{.seed = 5};
  const auto loss = [&] {
    ModelMemory memory = model->begin(2, Stored::inputs);
    const BlockOptions how{.target = target, .source = source, .source_lengths = lengths_of({7, 5})};
    auto y = model->forward(input, memory, how, draws);
    return y.likelihood.nats + y.cost;
  };
  loss().backward();
  Random random(6, "directions");
  for (const std::string part : {"encoder.position", "encoder.layers.0.query", "encoder.layers.1.norm2.weight",
                                 "layers.0.source.key", "layers.1.source.norm.weight", "position", "embedding"}) {
    Tensor parameter;
    for (auto& [name, tensor] : model->parameters())
      if (name == part) parameter = *tensor;
    ASSERT_TRUE(parameter.defined()) << part;
    Tensor direction = at::empty_like(parameter).detach();
    for (int64_t i = 0; i < direction.numel(); ++i) direction.data_ptr<double>()[i] = random.normal();
    const double expected = (parameter.grad() * direction).sum().item<double>();
    const auto at_step = [&](double step) {  // the costs are there only where gradients flow
      parameter.detach().add_(direction, step);
      const double value = loss().item<double>();
      parameter.detach().sub_(direction, step);
      return value;
    };
    constexpr double kStep = 1e-5;
    const double numeric = (at_step(kStep) - at_step(-kStep)) / (2 * kStep);
    EXPECT_NEAR(numeric, expected, 1e-6 * std::max(1.0, std::abs(expected))) << part;
  }
}

// The target is the source backwards: without the encoder nothing of it can be known.
TEST_P(EncoderDecoder, LearnsToReadItsSource) {
  constexpr int64_t kBatch = 16, kLength = 4, kUpdates = 150;
  const auto options = method_options(GetParam());
  ModelConfig config = t5_config();
  config.width = 24, config.feed_forward = 48;
  Transformer model(config, *options, kVocabulary, kBlock, Random(1, "weights"));
  Learner learner(std::move(model), language_modelling(),
                  {.batch = kBatch, .updates = kUpdates, .optimiser = {.rate = 1e-2, .warmup = 10}});
  double first = 0, last = 0;
  for (int64_t n = 0; n < kUpdates; ++n) {
    const Tensor source = random_tokens(kBatch, kLength, 100 + n), target = source.flip(1);
    Batch batch(at::constant_pad_nd(target.narrow(1, 0, kLength - 1), {1, 0}), target);
    batch.source = source;
    learner.restart();
    const double loss = learner.update(batch).loss;
    (n < 10 ? first : last) += n < 10 || n >= kUpdates - 10 ? loss / 10 : 0;
  }
  EXPECT_GT(first, 2.0);
  EXPECT_LT(last, 0.6 * first);
}

INSTANTIATE_TEST_SUITE_P(Methods, EncoderDecoder, testing::ValuesIn(method_names()),
                         [](const auto& info) { return info.param; });

// What a sample reads does not depend on the padding of its source, nor on the samples beside it.
TEST(EncoderDecoderPadding, ChangesNothing) {
  const auto options = method_options("fixed_span");
  const auto model = tiny_model(t5_config(), *options, at::kDouble);
  at::NoGradGuard no_grad;
  const Tensor source = random_tokens(3, 8, 2), target = random_tokens(3, 5, 3);
  const std::vector<int64_t> lengths = {3, 8, 1};
  const auto read = [&](const Tensor& source, const Tensor& target, const Tensor& lengths) {
    ModelMemory memory = model->begin(source.size(0), Stored::projections);
    return model->forward(target, memory, {.source = source, .source_lengths = lengths}).logits;
  };
  const Tensor all = read(source, target, lengths_of(lengths));
  for (int64_t b = 0; b < 3; ++b) {
    const Tensor alone = read(source.narrow(0, b, 1).narrow(1, 0, lengths[b]), target.narrow(0, b, 1), {});
    EXPECT_LT(difference(all.narrow(0, b, 1), alone), 1e-12) << b;
  }
}

TEST(EncoderDecoderPadding, WithoutASourceIsAnError) {
  const auto options = method_options("fixed_span");
  const auto model = tiny_model(t5_config(), *options, at::kFloat);
  ModelMemory memory = model->begin(1, Stored::projections);
  EXPECT_THROW(model->forward(random_tokens(1, 3), memory, {}), Error);
}

// Weights are drawn as T5's are: deviations within four standard errors.
TEST(EncoderDecoderWeights, HaveT5sDeviations) {
  ModelConfig config = t5_config();
  config.width = 96, config.heads = 8, config.head_dim = 24, config.feed_forward = 160;
  Transformer model(config, *method_options("fixed_span"), 200, kBlock, Random(3, "weights"));
  const double d = 96, D = 24, H = 8;
  const std::map<std::string, double> deviations = {
      {"embedding", 1},
      {"position", 1 / std::sqrt(d)},
      {"encoder.position", 1 / std::sqrt(d)},
      {"layers.0.query", 1 / std::sqrt(d * D)},
      {"layers.1.key", 1 / std::sqrt(d)},
      {"layers.1.value", 1 / std::sqrt(d)},
      {"layers.0.out", 1 / std::sqrt(H * D)},
      {"layers.0.source.query", 1 / std::sqrt(d * D)},
      {"encoder.layers.1.query", 1 / std::sqrt(d * D)},
      {"encoder.layers.1.out", 1 / std::sqrt(H * D)},
      {"layers.0.ff1.weight", 1 / std::sqrt(d)},
      {"encoder.layers.0.ff2.weight", 1 / std::sqrt(160)},
  };
  size_t found = 0;
  for (auto& [name, tensor] : model.parameters()) {
    const auto wanted = deviations.find(name);
    if (wanted == deviations.end()) continue;
    ++found;
    const double n = static_cast<double>(tensor->numel()), got = tensor->detach().square().mean().sqrt().item<double>();
    EXPECT_NEAR(got, wanted->second, wanted->second * 4 / std::sqrt(2 * n)) << name;
  }
  EXPECT_EQ(found, deviations.size());
}

}  // namespace
}  // namespace lapse
