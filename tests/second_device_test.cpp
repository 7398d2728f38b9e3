// Everything that computes makes its tensors where its model is: training, reading and generating on a second device
// give the CPU's numbers, and a tensor that was left on the CPU is an error there (ops/second_device_testing.h).
#include "lapse/ops/second_device_testing.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
#include "lapse/train/metrics.h"
#include "lapse/train/trainer.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kStreams = 3;

struct Kind {
  std::string method, norm;
  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.method << ", " << kind.norm; }
};

std::vector<Kind> kinds() {
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
      const Tensor tokens = random_tokens(kStreams, kBlock + 1, i);
      Tensor target = tokens.narrow(1, 1, kBlock).clone();
      if (i == 1) target.narrow(1, 2, 3).fill_(kNoTarget);
      updates.push_back(learner.update(Batch(tokens.narrow(1, 0, kBlock), target), /*observe=*/true));
    }
    return updates;
  }
};
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

// A GPU works ahead of the host until the host waits for it. A step waits to know how many rows are left in all layers'
// tables, and to read its losses and norm; with adaptive ends also for how many words are in each band, twice. Neither
// streams nor layers make it more. With Compressive it waits for the streams' times too, once for all layers. Each part
// of a batch waits for itself but for losses and norm. A step with a line of metrics waits for how many rows each part
// held, and for what the method told of them, once for all parts.
TEST_P(SecondDeviceModel, AStepWaitsSeldom) {
  const Threads one(1);
  struct Step {
    int64_t streams = kStreams, layers = 2, parts = 1;
    bool observe = false;
  };
  const auto waits_of = [&](const Step& step) {
    const LearnerOptions options{
        .batch = step.streams, .parts = step.parts, .updates = 10, .optimiser = {.rate = 0.01, .warmup = 2}};
    Learner learner(model(second_device(), step.layers), scored_task(), options);
    int64_t before = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      const Tensor tokens = random_tokens(step.streams, kBlock + 1, i);
      Tensor target = tokens.narrow(1, 1, kBlock).clone();
      if (i == 2) target.narrow(1, 2, 3).fill_(kNoTarget);
      before = second_device_reads();
      const Update update = learner.update(Batch(tokens.narrow(1, 0, kBlock), target), step.observe);
      summaries(update.reports);
    }
    return second_device_reads() - before;
  };
  const int64_t few = waits_of({}), times = GetParam().method == "compressive" ? 1 : 0;
  const int64_t usual = GetParam().norm == "pre" ? 4 : 2;
  EXPECT_GE(few, usual);
  EXPECT_LE(few, usual + times);
  EXPECT_EQ(waits_of({.streams = 4 * kStreams, .layers = 5}), few);
  EXPECT_EQ(waits_of({.parts = 3}), 3 * (few - 1) + 1);
  const int64_t line = waits_of({.observe = true}) - few;
  EXPECT_GE(line, 1);
  EXPECT_LE(line, 2);
  EXPECT_EQ(waits_of({.layers = 5, .observe = true}), few + line);
  EXPECT_LE(waits_of({.parts = 3, .observe = true}), 3 * (few - 1) + 1 + 3 + 1);
}

// A token waits for its logits; now and then for how many rows are left, which methods with budgets do at every token.
// Compressive waits for the streams' times too.
TEST_P(SecondDeviceModel, ATokenWaitsSeldom) {
  const Threads one(1);
  Transformer model = this->model(second_device());
  Generator generator(model, {}, 7);
  generator.feed({1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2});
  constexpr int64_t kTokens = 40;
  const int64_t before = second_device_reads();
  for (int64_t i = 0; i < kTokens; ++i) generator.next();
  const Method& method = model.layers()[0].attention().method();
  const int64_t reads = second_device_reads() - before;
  EXPECT_GT(reads, kTokens);  // one step makes room, the others are recorded or replayed
  EXPECT_LE(reads, method.pools() ? 3 * kTokens : method.one_by_one() ? 2 * kTokens : kTokens + 1);
}

// That learned positions end is known on the host; a memory that was made of another is asked once.
TEST(SecondDevicePositions, OfTimesAreNotWaitedFor) {
  const Threads one(1);
  const auto waits_of = [](const std::string& positions, bool known) {
    ModelConfig config = tiny_config("post");
    config.positions = positions;
    Transformer model(config, *method_options("fixed_span", {}), kVocabulary, kBlock, Random(1, "weights"));
    model.to(second_device());
    ModelMemory memory = model.begin(kStreams, Stored::inputs);
    if (!known) memory.latest = kNever;
    const auto read = [&](int64_t n) { model.forward(random_tokens(kStreams, n, 1).to(second_device()), memory, {}); };
    const int64_t before = second_device_reads();
    read(kBlock - 2), read(1), read(1);
    const int64_t waits = second_device_reads() - before;
    if (positions == "absolute") {
      EXPECT_NE(error_of([&] { read(1); }).find("learned positions for windows of"), std::string::npos);
      EXPECT_EQ(memory.clock.to(at::kCPU)[0].item<int64_t>(), kBlock);
    }
    return waits;
  };
  EXPECT_EQ(waits_of("absolute", true), waits_of("relative", true));
  EXPECT_EQ(waits_of("absolute", false), waits_of("absolute", true) + 1);
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
