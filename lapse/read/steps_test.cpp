#include "lapse/read/steps.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lapse/core/testing.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kRoom = 10, kPrompt = 5;

std::unique_ptr<Transformer> model_of(const std::string& method, ModelConfig config = tiny_config("pre")) {
  auto model = tiny_model(config, *method_options(method, {{"max_span", "13"}}), at::kDouble);
  model->to(second_device());
  return model;
}

/// One token of each stream at a time, by `Steps` and by the model as ever: the same logits, with memories of their
/// own.
struct Both {
  Both(Transformer& m, int64_t streams)
      : model(m),
        steps(m, kRoom),
        memory(m.begin(streams, Stored::projections)),
        plain(m.begin(streams, Stored::projections)),
        tokens(random_tokens(streams, 200)) {
    at::NoGradGuard no_grad;
    const Tensor prompt = tokens.narrow(1, 0, kPrompt).to(second_device());
    for (ModelMemory* each : {&memory, &plain}) model.forward(prompt, *each, {});
  }

  /// From where both are.
  void read(int64_t n) {
    for (; n > 0; --n, ++at) {
      const Tensor token = tokens.select(1, at).contiguous();
      const Tensor got = steps(token, memory).to(at::kCPU), expected = read_plainly(plain, at);
      ASSERT_LT(difference(got, expected), 1e-12) << "token " << at;
    }
  }

  Tensor read_plainly(ModelMemory& from, int64_t place) const {
    at::NoGradGuard no_grad;
    const Tensor token = tokens.narrow(1, place, 1).to(second_device());
    return model.forward(token, from, {}).logits.squeeze(1).to(at::kCPU);
  }

  Transformer& model;
  Steps steps;
  ModelMemory memory, plain;
  Tensor tokens;
  int64_t at = kPrompt;
};

class StepsOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, StepsOf, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& entry : method_table()) names.push_back(entry.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST_P(StepsOf, GiveTheModelsLogits) {
  const Threads one(1);
  const auto model = model_of(GetParam());
  const Method& method = model->layers()[0].attention().method();
  for (const int64_t streams : {1, 3}) {
    Both both(*model, streams);
    both.read(50);
    const bool waits = method.pools() || method.one_by_one();
    EXPECT_GE(both.steps.replays(), waits ? 0 : 40);  // a tenth of the steps makes room
    EXPECT_LE(both.steps.replays(), waits ? 0 : 49);
  }
}

TEST_P(StepsOf, WaitForNothingWhereTheyAreReplayed) {
  const Threads one(1);
  const auto model = model_of(GetParam());
  Both both(*model, 2);
  const Tensor token = both.tokens.select(1, 0).contiguous();
  for (int64_t i = 0; i < 25; ++i) {
    const int64_t replays = both.steps.replays(), reads = second_device_reads();
    both.steps(token, both.memory);
    if (both.steps.replays() > replays) {
      EXPECT_EQ(second_device_reads(), reads);
    }
  }
}

TEST(Steps, LeaveCopiesOfTheMemoryAlone) {
  const Threads one(1);
  const auto model = model_of("expire_span");
  Both both(*model, 3);
  both.read(4);
  ModelMemory copy = both.memory;
  const int64_t place = both.at;
  both.read(30);
  ModelMemory again = model->begin(3, Stored::projections);
  Tensor expected;
  for (int64_t i = 0; i <= place; ++i) expected = both.read_plainly(again, i);
  EXPECT_LT(difference(both.read_plainly(copy, place), expected), 1e-12);
}

TEST(Steps, GoOnWithStreamsThatWereResetOrReplaced) {
  const Threads one(1);
  const auto model = model_of("selective_attention");
  Both both(*model, 3);
  both.read(4);
  for (ModelMemory* each : {&both.memory, &both.plain})
    for (auto& table : each->layers) table.reset({1});
  both.read(20);
  for (ModelMemory* each : {&both.memory, &both.plain}) *each = model->begin(3, Stored::projections);
  both.read(20);
  EXPECT_GE(both.steps.replays(), 30);
}

// Two streams by turns, as requests of a server, with graphs that share their memory.
TEST(Steps, OfTwoMemoriesDoNotMeet) {
  const Threads one(1);
  const auto model = model_of("expire_span");
  Both first(*model, 2), second(*model, 3);
  for (int64_t i = 0; i < 30; ++i) first.read(1), second.read(1);
  EXPECT_GE(first.steps.replays() + second.steps.replays(), 40);
}

// One that reads two memories by turns records at each turn.
TEST(Steps, MayChangeTheMemory) {
  const Threads one(1);
  const auto model = model_of("selective_attention");
  Both first(*model, 2), second(*model, 2);
  for (int64_t i = 0; i < 12; ++i) {
    const int64_t place = kPrompt + i;
    for (Both* each : {&first, &second}) {
      const Tensor got = first.steps(each->tokens.select(1, place).contiguous(), each->memory).to(at::kCPU);
      ASSERT_LT(difference(got, each->read_plainly(each->plain, place)), 1e-12) << i;
    }
  }
}

TEST(Steps, GoOnWithoutGraphsWhereRecordingFails) {
  const Threads one(1);
  const auto model = model_of("expire_span");
  for (const int64_t calls : {0, 1, 30, 80, 110}) {  // in the first layer, in the second, and behind
    Both both(*model, 2);
    fail_next_recording_of_second_device(calls);
    both.read(30);
    EXPECT_EQ(both.steps.replays(), 0) << calls;
  }
  Both again(*model, 2);
  again.read(30);
  EXPECT_GT(again.steps.replays(), 0);
}

TEST(Steps, RefuseAnotherNumberOfTokens) {
  const Threads one(1);
  const auto model = model_of("expire_span");
  Both both(*model, 3);
  both.read(4);
  EXPECT_THROW(both.steps(at::ones({1}, at::kLong), both.memory), c10::Error);
  both.read(4);
}

TEST(Steps, EndWherePositionsEnd) {
  const Threads one(1);
  ModelConfig config = tiny_config("pre");
  config.positions = "absolute";
  const auto model = model_of("fixed_span", config);
  ASSERT_EQ(model->context(), kBlock);
  Both both(*model, 2);
  both.read(kBlock - kPrompt);
  EXPECT_GT(both.steps.replays(), 0);
  EXPECT_THAT(error_of([&] { both.steps(both.tokens.select(1, 0).contiguous(), both.memory); }),
              testing::HasSubstr("windows of 8 tokens"));
}

TEST(Steps, AreOrdinaryWhereTheEnvironmentSaysSo) {
  const Threads one(1);
  setenv("LAPSE_GRAPHS", "0", 1);
  const auto model = model_of("expire_span");
  Both both(*model, 2);
  unsetenv("LAPSE_GRAPHS");
  both.read(20);
  EXPECT_EQ(both.steps.replays(), 0);
}

}  // namespace
}  // namespace lapse
