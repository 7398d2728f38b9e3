#include "lapse/train/learner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kVocabulary = 11, kBlock = 6, kBatch = 4;

Transformer small_model(const std::string& method, double dropout = 0) {
  ModelConfig config;
  config.width = 8, config.layers = 2, config.heads = 2, config.feed_forward = 12, config.dropout = dropout;
  return {config, *method_options(method), kVocabulary, kBlock, Random(3, "weights")};
}

LearnerOptions options(int64_t parts = 1) {
  return {.batch = kBatch,
          .parts = parts,
          .updates = 10,
          .optimiser = {.name = "sgd", .rate = 0.1, .warmup = 2, .clip = 0.5}};
}

TokenBlock random_block(uint64_t seed, double unscored = 0) {
  Random random(seed, "blocks");
  TokenBlock block{.batch = kBatch, .length = kBlock};
  for (int64_t i = 0; i < kBatch * kBlock; ++i) {
    block.input.push_back(static_cast<int64_t>(random.uniform() * kVocabulary));
    const auto target = static_cast<int64_t>(random.uniform() * kVocabulary);
    block.target.push_back(random.uniform() < unscored ? kUnscored : target);
  }
  return block;
}

std::vector<Tensor> copies(Transformer& model) {
  std::vector<Tensor> all;
  for (auto& [name, tensor] : model.parameters()) all.push_back(tensor->detach().clone());
  return all;
}

// The update once more, written out: mean loss and cost, clipped, at the scheduled rate.
TEST(Learner, UpdatesByTheClippedGradientOfLossAndCost) {
  Learner learner(small_model("expire_span"), language_modelling(), options());
  Transformer model = small_model("expire_span");
  ModelMemory memory = model.begin(kBatch, Stored::inputs);
  Random draws(1, "blocks");
  for (int n = 1; n <= 3; ++n) {
    const TokenBlock block = random_block(n);
    const Update made = learner.update(block);
    const Batch batch(block);
    const auto y = model.forward(batch.input, memory, {}, model.draw(draws));
    const Tensor loss = at::cross_entropy_loss(y.logits.flatten(0, 1), batch.target.flatten());
    for (auto& [name, tensor] : model.parameters()) tensor->mutable_grad() = Tensor();
    (loss + y.cost).backward();
    double squares = 0;
    for (auto& [name, tensor] : model.parameters())
      if (tensor->grad().defined()) squares += tensor->grad().pow(2).sum().item<double>();
    const double norm = std::sqrt(squares), rate = 0.1 * std::min(1.0, n / 2.0);
    for (auto& [name, tensor] : model.parameters())
      if (tensor->grad().defined()) tensor->detach().sub_(tensor->grad() * (rate * std::min(1.0, 0.5 / norm)));
    model.after_update();
    EXPECT_NEAR(made.loss, loss.item<double>(), 1e-6);
    EXPECT_NEAR(made.cost, y.cost.item<double>(), 1e-9);
    EXPECT_NEAR(made.gradient_norm, norm, 1e-5 * norm);
    EXPECT_DOUBLE_EQ(made.rate, rate);
    EXPECT_EQ(learner.updates(), n);
    const auto got = copies(learner.model()), expected = copies(model);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LT((got[i] - expected[i]).abs().max().item<double>(), 1e-6);
  }
}

TEST(Learner, PartsMakeTheSameUpdate) {
  for (const auto& [objective, unscored] :
       {std::pair(&scored_task, 0.0), {&scored_task, 0.6}, {&language_modelling, 0.6}, {&language_modelling, 0.97}}) {
    Learner whole(small_model("fixed_span"), objective(), options()),
        parts(small_model("fixed_span"), objective(), options(2));
    for (int n = 1; n <= 3; ++n) {
      const Update a = whole.update(random_block(n, unscored)), b = parts.update(random_block(n, unscored));
      EXPECT_NEAR(a.loss, b.loss, 1e-6);
      EXPECT_NEAR(a.score.nats, b.score.nats, 1e-4);
      EXPECT_EQ(a.score.scored, b.score.scored);
      EXPECT_EQ(a.score.right, b.score.right);
    }
    const auto x = copies(whole.model()), y = copies(parts.model());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_LT((x[i] - y[i]).abs().max().item<double>(), 1e-6);
  }
}

TEST(Learner, CountsWhatTheBatchHolds) {
  Learner learner(small_model("fixed_span"), scored_task(), options(2));
  TokenBlock block = random_block(1, 0.5);
  block.bytes = {7, 2};
  const Update made = learner.update(block, /*observe=*/true);
  EXPECT_EQ(made.score.scored, block.scored());
  EXPECT_EQ(made.score.bytes.all, 7);
  EXPECT_EQ(made.steps, kBatch * kBlock);
  EXPECT_NEAR(made.loss, made.score.nats / (static_cast<double>(block.scored()) + 2e-6), 1e-5);
  EXPECT_EQ(made.reports.size(), 2u);
  EXPECT_EQ(made.reports[0].size(), 2u);
  EXPECT_TRUE(learner.update(block).reports.empty());
  block.lengths = {kBlock, 1, 3, 2};
  EXPECT_EQ(learner.update(block).steps, kBlock + 6);
}

TEST(Learner, MemoryIsCarriedUntilABlockRestartsIt) {
  Learner learner(small_model("fixed_span"), language_modelling(), options());
  TokenBlock block = random_block(1);
  learner.update(block);
  learner.update(block);
  EXPECT_EQ(learner.memory()[0].clock[0].item<int64_t>(), 2 * kBlock);
  block.restart = true;
  learner.update(block);
  EXPECT_EQ(learner.memory()[0].clock[0].item<int64_t>(), kBlock);
}

TEST(Learner, AStepThatIsNotFiniteIsNotTaken) {
  Learner learner(small_model("fixed_span"), language_modelling(), options());
  learner.model().parameters()[0].second->detach().fill_(3e38);
  const auto before = copies(learner.model());
  const Update made = learner.update(random_block(1));
  EXPECT_FALSE(std::isfinite(made.loss) && std::isfinite(made.gradient_norm));
  EXPECT_EQ(learner.updates(), 0);
  const auto after = copies(learner.model());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
}

TEST(Learner, TrainsWhatItIsToldTo) {
  LearnerOptions some = options();
  some.trains = [](const std::string& name) { return name.starts_with("output."); };
  Learner learner(small_model("fixed_span"), language_modelling(), some);
  const auto before = copies(learner.model());
  learner.update(random_block(1));
  const auto after = copies(learner.model());
  const auto names = learner.model().parameters();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(at::equal(before[i], after[i]), !names[i].first.starts_with("output.")) << names[i].first;
}

TEST(Learner, RefusesBatchesOfOtherSizes) {
  const auto made = [](LearnerOptions wrong) { Learner(small_model("fixed_span"), language_modelling(), wrong); };
  for (const int64_t parts : {0, 3, 8}) EXPECT_THROW(made(options(parts)), Error);
  EXPECT_THROW(made({.batch = 0}), Error);
  EXPECT_THROW(made({.optimiser = {.name = "AdamW"}}), Error);
  Learner learner(small_model("fixed_span"), language_modelling(), {.batch = 2 * kBatch});
  EXPECT_THROW(learner.update(random_block(1)), Error);
  EXPECT_THROW(learner.update(Batch(random_block(1))), Error);
}

TEST(Learner, ReadsNoMoreAfterAnErrorInOneOfTheParts) {
  Learner learner(small_model("fixed_span"), language_modelling(), options(/*parts=*/2));
  TokenBlock wrong = random_block(1);
  wrong.input.back() = kVocabulary;
  EXPECT_THROW(learner.update(wrong), Error);
  EXPECT_THROW(learner.update(random_block(2)), Error);
  learner.restart();
  EXPECT_GT(learner.update(random_block(2)).loss, 0);
}

}  // namespace
}  // namespace lapse
