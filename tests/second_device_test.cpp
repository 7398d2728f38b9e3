// Everything that computes makes its tensors where its model is: training, reading and generating on a second device
// give the CPU's numbers, and a tensor that was left on the CPU is an error there (ops/second_device_testing.h).
#include "lapse/ops/second_device_testing.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "lapse/core/testing.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/observe/matrix.h"
#include "lapse/observe/recorder.h"
#include "lapse/ops/aten.h"
#include "lapse/read/generator.h"
#include "lapse/read/prune.h"
#include "lapse/read/reader.h"
#include "lapse/train/actor_critic.h"
#include "lapse/train/agent.h"
#include "lapse/train/agent_testing.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/evaluate.h"
#include "lapse/train/learner.h"
#include "lapse/train/trainer.h"
#include "tests/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;

INSTANTIATE_TEST_SUITE_P(Methods, SecondDeviceModel, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.method + "_" + info.param.norm; });

// float32 has 6e-8, and kernels of the CPU are compared with references.
TEST_P(SecondDeviceModel, LearnsAsOnTheCpu) {
  const Threads one(1);
  const LearnerOptions options{.batch = kStreams, .updates = 10, .optimiser = {.rate = 0.01, .warmup = 2}};
  Learner there(model(second_device()), scored_task(), options), here(model(at::kCPU), scored_task(), options);
  const auto got = train(there), expected = train(here);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].loss, expected[i].loss, 1e-5);
    EXPECT_NEAR(got[i].cost, expected[i].cost, 1e-5);
    EXPECT_NEAR(got[i].gradient_norm, expected[i].gradient_norm, 1e-4);
    EXPECT_EQ(got[i].score.right, expected[i].score.right);
    for (size_t l = 0; l < got[i].reports[0].size(); ++l)
      EXPECT_EQ(got[i].reports[0][l].memory_sum, expected[i].reports[0][l].memory_sum);
  }
  const auto trained = there.model().parameters(), other = here.model().parameters();
  for (size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(trained[i].second->device(), second_device()) << trained[i].first;
    EXPECT_LT(difference(trained[i].second->detach().to(at::kCPU), other[i].second->detach()), 1e-3)
        << trained[i].first;
  }
}

// bfloat16 has 2e-3, in each of some ten products in a row. Losses or norms alone may round to the same float.
TEST_P(SecondDeviceModel, LearnsInBfloat16) {
  const Threads one(1);
  LearnerOptions options{.batch = kStreams, .updates = 10, .optimiser = {.rate = 0.01, .warmup = 2}};
  Learner exact(model(second_device()), scored_task(), options);
  options.bfloat16 = true;
  Learner rounded(model(second_device()), scored_task(), options);
  const auto got = train(rounded), expected = train(exact);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].loss, expected[i].loss, 0.02);
    EXPECT_NE(std::pair(got[i].loss, got[i].gradient_norm), std::pair(expected[i].loss, expected[i].gradient_norm));
    EXPECT_NEAR(got[i].gradient_norm / expected[i].gradient_norm, 1, 0.05);
  }
  for (const auto& [name, parameter] : rounded.model().parameters()) EXPECT_EQ(parameter->scalar_type(), at::kFloat);
}

TEST(SecondDeviceEncoder, LearnsAndReadsAsOnTheCpu) {
  const Threads one(1);
  ModelConfig config = tiny_config("pre");
  config.encoder_layers = 2, config.positions = "buckets", config.output = "tied", config.attend_self = true;
  config.dropout = config.residual_dropout = config.embedding_dropout = config.output_dropout = 0.1;
  const auto made = [&](const at::Device& device) {
    Transformer model(config, *method_options("selective_attention"), kVocabulary, kBlock, Random(1, "weights"));
    model.to(device);
    return model;
  };
  const LearnerOptions options{.batch = kStreams, .updates = 10, .optimiser = {.rate = 0.01, .warmup = 2}};
  Learner there(made(second_device()), scored_task(), options), here(made(at::kCPU), scored_task(), options);
  Batch batch(random_tokens(kStreams, kBlock, 1), random_tokens(kStreams, kBlock, 2));
  batch.source = random_tokens(kStreams, 7, 3);
  for (Learner* learner : {&there, &here}) learner->update(batch), learner->restart();
  const Update got = there.update(batch), expected = here.update(batch);
  EXPECT_NEAR(got.loss, expected.loss, 1e-5);
  EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-4);
  at::NoGradGuard no_grad;
  const auto logits = [&](Transformer& model) {
    const auto on = [&](const Tensor& x) { return x.to(model.device()); };
    ModelMemory memory = model.begin(kStreams, Stored::projections);
    BlockOptions how{.source = on(batch.source),
                     .source_lengths = on(at::tensor({int64_t{4}, int64_t{1}, int64_t{7}}))};
    model.forward(on(batch.input), memory, how);
    return model.forward(on(batch.target), memory, {}).logits.to(at::kCPU);
  };
  EXPECT_LT(difference(logits(there.model()), logits(here.model())), 1e-4);
}

TEST_P(SecondDeviceModel, ReadsAsOnTheCpu) {
  const Threads one(1);
  at::NoGradGuard no_grad;
  Transformer there = model(second_device()), here = model(at::kCPU);
  const Tensor tokens = random_tokens(kStreams, 5 * kBlock),
               lengths = at::tensor({int64_t{4}, int64_t{1}, kBlock}, at::kLong);
  const Tensor begins = at::zeros({kStreams, kBlock}, at::kBool);  // of episodes
  begins[1][3] = true;
  ModelMemory memory = there.begin(kStreams, Stored::projections), other = here.begin(kStreams, Stored::projections);
  for (const int64_t K : {8, 8, 1, 1, 8}) {
    BlockOptions options{.observe = true};
    if (K == kBlock) options.lengths = lengths;
    if (K == kBlock && GetParam().norm == "post") options.begins = begins;
    const auto expected = here.forward(tokens.narrow(1, 0, K), other, options);
    if (K == kBlock) options.lengths = lengths.to(second_device());
    if (options.begins.defined()) options.begins = begins.to(second_device());
    const auto got = there.forward(tokens.narrow(1, 0, K).to(second_device()), memory, options);
    EXPECT_LT(difference(got.logits.to(at::kCPU), expected.logits), 1e-5);
    for (size_t l = 0; l < got.reports.size(); ++l) {
      EXPECT_EQ(got.reports[l].memory_sum, expected.reports[l].memory_sum);
      EXPECT_EQ(memory.layers[l].rows(), other.layers[l].rows());
    }
  }
}

// Weights in bfloat16: many rows, and few, which only the CPU multiplies in float32.
TEST_P(SecondDeviceModel, ReadsBfloat16AsOnTheCpu) {
  const Threads one(1);
  at::NoGradGuard no_grad;
  Transformer there = model(second_device()), here = model(at::kCPU);
  for (Transformer* each : {&there, &here}) each->to_bfloat16();
  const Tensor tokens = random_tokens(kStreams, kBlock);
  ModelMemory memory = there.begin(kStreams, Stored::projections), other = here.begin(kStreams, Stored::projections);
  for (const int64_t K : {8, 1, 1, 8}) {
    const auto expected = here.forward(tokens.narrow(1, 0, K), other, {});
    const auto got = there.forward(tokens.narrow(1, 0, K).to(second_device()), memory, {});
    EXPECT_LT(difference(got.logits.to(at::kCPU), expected.logits), 0.05);
  }
}

TEST_P(SecondDeviceModel, GeneratesAsOnTheCpu) {
  const Threads one(1);
  Transformer there = model(second_device()), here = model(at::kCPU);
  Generator got(there, {}, 7), expected(here, {}, 7);
  for (Generator* each : {&got, &expected}) each->feed({1, 2, 3, 4, 5});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(got.next(), expected.next());
  EXPECT_EQ(got.memory_sizes(), expected.memory_sizes());
  EXPECT_EQ(got.remembered(), expected.remembered());
}

TEST_P(SecondDeviceModel, IsObservedAsOnTheCpu) {
  const Threads one(1);
  Transformer there = model(second_device()), here = model(at::kCPU);
  const Tensor ids = random_tokens(1, 30);
  Tokens tokens(kVocabulary);
  for (int64_t i = 0; i < 30; ++i) tokens.append({static_cast<int32_t>(ids[0][i].item<int64_t>())});
  EvaluationStreams some(tokens, 1, kBlock, false), same(tokens, 1, kBlock, false);
  const MemoryRecord got = record_memory(there, some), expected = record_memory(here, same);
  for (size_t l = 0; l < got.layers.size(); ++l) {
    EXPECT_EQ(got.layers[l].held, expected.layers[l].held);
    EXPECT_EQ(got.layers[l].sizes, expected.layers[l].sizes);
  }
  for (const std::string what : {"kept", "attention"}) {
    if (there.layers()[0].attention().method().one_by_one()) break;
    EvaluationStreams block(tokens, 1, kBlock, false), copy(tokens, 1, kBlock, false);
    const MatrixRecord matrix = record_matrix(there, block, {.what = what});
    const MatrixRecord wanted = record_matrix(here, copy, {.what = what});
    for (size_t l = 0; l < wanted.layers.size(); ++l)
      EXPECT_LT(difference(matrix.layers[l].mean, wanted.layers[l].mean), 1e-5) << what;
  }
  EvaluationStreams whole(tokens, 2, kBlock, false), again(tokens, 2, kBlock, false);
  const EvaluationResult read = evaluate(there, whole), other = evaluate(here, again);
  EXPECT_NEAR(read.nats, other.nats, 1e-5);
}

TEST(SecondDeviceEncoder, GeneratesAsOnTheCpu) {
  const Threads one(1);
  ModelConfig config = tiny_config("pre");
  config.encoder_layers = 2, config.positions = "buckets", config.output = "tied", config.attend_self = true;
  const auto made = [&](const at::Device& device) {
    Transformer model(config, *method_options("selective_attention"), kVocabulary, kBlock, Random(1, "weights"));
    model.to(device);
    return model;
  };
  Transformer there = made(second_device()), here = made(at::kCPU);
  Generator got(there, {}, 7), expected(here, {}, 7);
  for (Generator* each : {&got, &expected}) each->read_source({5, 4, 3, 2}), each->feed({1});
  for (int i = 0; i < 12; ++i) EXPECT_EQ(got.next(), expected.next());
}

TEST(SecondDeviceBudgets, AreThoseOfTheCpu) {
  const Threads one(1);
  ModelConfig config = tiny_config("pre");
  config.attend_self = true;
  Tokens tokens(kVocabulary);
  Random random(1, "text");
  for (int64_t i = 0; i < 200; ++i) tokens.append({static_cast<int32_t>(random.below(kVocabulary))});
  const auto curve_on = [&](const at::Device& device) {
    const auto method = method_options("selective_attention", {{"max_span", "40"}});
    Transformer model(config, *method, kVocabulary, kBlock, Random(1, "weights"));
    vary_spans(model, Random(1, "spans"));
    model.to(device);
    EvaluationStreams blocks(tokens, 2, kBlock, false);
    LayerwiseText text(model, blocks, 0);
    return search_budgets(text, std::ssize(model.layers()), {.context = 40, .threshold = 1e9}, {});
  };
  const auto got = curve_on(second_device()), expected = curve_on(at::kCPU);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].total(), expected[i].total());
    EXPECT_NEAR(got[i].nats, expected[i].nats, 1e-5);
  }
}

std::vector<std::string> methods() {
  std::vector<std::string> all;
  for (const auto& entry : method_table()) all.push_back(entry.name);
  return all;
}

class SecondDeviceAgents : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, SecondDeviceAgents, testing::ValuesIn(methods()),
                         [](const auto& info) { return info.param; });

TEST_P(SecondDeviceAgents, ActAndLearnAsOnTheCpu) {
  const Threads one(1);
  constexpr int64_t kAgents = 5, kSteps = 12;
  std::vector<Script> scripts;
  for (int64_t i = 0; i < kAgents; ++i) scripts.push_back(random_script(i, 61, 6));
  const auto played_on = [&](const at::Device& device) {
    Transformer model = std::move(*tiny_agent(GetParam()));
    model.to(device);
    const LearnerOptions options{.batch = kAgents, .updates = 10, .optimiser = {.rate = 0.01, .warmup = 2}};
    Learner learner(std::move(model), actor_critic({}), options);
    Agents agents(ScriptedOptions(scripts), kAgents, /*seed=*/5);
    std::vector<Agents::Played> played;
    std::vector<Update> updates;
    for (int i = 0; i < 3; ++i) {
      played.push_back(agents.play(learner.model(), learner.memory(), kSteps, 0.9));
      updates.push_back(learner.update(played.back().batch));
    }
    return std::pair(std::move(played), std::move(updates));
  };
  const auto [got, learned] = played_on(second_device());
  const auto [expected, others] = played_on(at::kCPU);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].batch.target.equal(expected[i].batch.target));
    EXPECT_LT(difference(got[i].batch.more.at("returns"), expected[i].batch.more.at("returns")), 1e-4);
    EXPECT_NEAR(learned[i].loss, others[i].loss, 1e-4);
    EXPECT_NEAR(learned[i].gradient_norm, others[i].gradient_norm, 1e-3);
  }
}

Config small_run(const fs::path& text, const std::string& device, int64_t updates) {
  Config config;
  config.data.path = text.string();
  config.model = tiny_config("post");
  config.train.device = device;
  config.train.batch = 4, config.train.parts = 2, config.train.block = kBlock, config.train.updates = updates;
  config.train.log_every = 2, config.train.validate_every = 2, config.train.threads = 1;
  return config;
}

// A whole run, begun on the CPU, gone on with on the device, and read on either.
TEST(SecondDeviceRun, GoesOnWhereAnotherDeviceLeftIt) {
  const Threads one(1);
  TestFolder folder;
  std::string text;
  Random random(1, "text");
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + random.below(5));
  write_file(folder / "text", text);
  const auto train_on = [&](const char* device, int64_t updates, const char* run) {
    Config config = small_run(folder / "text", device, updates);
    EXPECT_EQ(train(config, folder / run, {.resume = true, .quiet = true}), Outcome::kFinished);
  };
  train_on("cpu", 6, "here");
  train_on("cpu", 3, "there"), train_on("second", 6, "there");
  const auto model_of = [&](const char* run, const char* device) {
    return open_reader({.run = (folder / run).string(), .device = device, .threads = 1}).model();
  };
  const auto here = model_of("here", "cpu"), there = model_of("there", "second");
  EXPECT_EQ(there->device(), second_device());
  const auto expected = here->parameters(), got = there->parameters();
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(difference(got[i].second->detach().to(at::kCPU), expected[i].second->detach()), 1e-4) << got[i].first;
  train_on("cpu", 7, "there");
}

}  // namespace
}  // namespace lapse
