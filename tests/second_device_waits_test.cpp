// How often the host waits for a device, as the second device counts it (ops/second_device_testing.h).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lapse/core/testing.h"
#include "lapse/ops/aten.h"
#include "lapse/read/generator.h"
#include "lapse/train/metrics.h"
#include "tests/second_device_testing.h"

namespace lapse {
namespace {

using at::Tensor;

class SecondDeviceWaits : public SecondDeviceModel {};
INSTANTIATE_TEST_SUITE_P(Methods, SecondDeviceWaits, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.method + "_" + info.param.norm; });

// A GPU works ahead of the host until the host waits for it. A step waits to know how many rows are left in all layers'
// tables, and to read its losses and norm; with adaptive ends also for how many words are in each band, twice. Neither
// streams nor layers make it more. With Compressive it waits for the streams' times too, once for all layers. Each part
// of a batch waits for itself but for losses and norm. A step with a line of metrics waits for how many rows each part
// held, and for what the method told of them, once for all parts.
TEST_P(SecondDeviceWaits, AStepWaitsSeldom) {
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
TEST_P(SecondDeviceWaits, ATokenWaitsSeldom) {
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
TEST(SecondDeviceWaitsForPositions, OnlyWhereTheyAreUnknown) {
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

}  // namespace
}  // namespace lapse
