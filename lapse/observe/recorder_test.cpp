#include "lapse/observe/recorder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/data/window.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/train/evaluate.h"

namespace lapse {
namespace {

constexpr int64_t kLength = 90;

Tokens random_text(int64_t length = kLength) {
  const at::Tensor ids = random_tokens(1, length);
  Tokens tokens(kVocabulary);
  for (int64_t i = 0; i < length; ++i) tokens.append({static_cast<int32_t>(ids.data_ptr<int64_t>()[i])});
  return tokens;
}

TextRecord record(const std::string& method, const Settings& settings = {}, int64_t limit = 0) {
  const auto model = tiny_model(tiny_config("post"), *method_options(method, settings), at::kFloat);
  const Tokens tokens = random_text();
  EvaluationStreams blocks(tokens, 1, kBlock, false);
  return record_memory(*model, blocks, {.tokens = limit});
}

/// At how many earlier tokens, or itself, the query of each token could look, by what the record says of the tokens.
std::vector<int64_t> readable(const LayerRecord& layer, bool itself) {
  std::vector<int64_t> counts;
  for (int64_t t = 0; t < std::ssize(layer.held); ++t) {
    counts.push_back(itself);
    for (int64_t i = 0; i < t; ++i) counts.back() += t - i <= layer.held[i];
  }
  return counts;
}

TEST(Recorder, RowsOfAFixedSpanAreHeldSoLong) {
  const auto seen = record("fixed_span", {{"max_span", "20"}});
  ASSERT_EQ(std::ssize(seen.tokens), kLength - 1);
  for (const auto& layer : seen.layers)
    for (int64_t i = 0; i < kLength - 1; ++i) {
      const int64_t left = kLength - 2 - i;
      EXPECT_EQ(layer.held[i], std::min<int64_t>(20, left));
      EXPECT_EQ(layer.there[i], left < 20);
    }
}

TEST(Recorder, ExpiringRowsAreHeldUntilTheirRampEnds) {
  const auto seen = record("expire_span");
  for (const auto& layer : seen.layers)
    for (int64_t i = 0; i < kLength - 1; ++i) {
      const auto stays = static_cast<int64_t>(std::ceil(layer.told.at("span")[i] + 6.5)) - 1;
      EXPECT_EQ(layer.held[i], std::min(stays, kLength - 2 - i));
    }
}

TEST(Recorder, RowsAddUpToMemorySizes) {
  for (const auto& entry : method_table()) {
    const auto seen = record(entry.name);
    for (const auto& layer : seen.layers) {
      ASSERT_EQ(std::ssize(layer.there), kLength - 1) << entry.name;
      const auto tokens = readable(layer, layer.sizes[0] == 1);
      for (int64_t t = 0; t < kLength - 1; ++t) {
        const int64_t pooled = entry.name == "compressive" ? layer.sizes[t] - tokens[t] : 0;
        EXPECT_GE(pooled, 0) << "time " << t;
        EXPECT_EQ(tokens[t] + pooled, layer.sizes[t]) << entry.name << " at time " << t;
      }
    }
  }
}

TEST(Recorder, SeesWhatEvaluationMeasures) {
  for (const auto& entry : method_table()) {
    const auto model = tiny_model(tiny_config("post"), *method_options(entry.name), at::kFloat);
    const Tokens tokens = random_text();
    EvaluationStreams blocks(tokens, 1, kBlock, false), again(tokens, 1, kBlock, false);
    const auto seen = record_memory(*model, blocks);
    const auto expected = evaluate(*model, again);
    EXPECT_EQ(seen.score.scored, expected.score.scored);
    EXPECT_EQ(seen.score.bytes, expected.score.bytes);
    EXPECT_NEAR(seen.score.nats, expected.score.nats, 1e-4 * expected.score.nats);  // float32 sums in another order
    for (size_t l = 0; l < seen.layers.size(); ++l) {
      EXPECT_NEAR(seen.layers[l].mean(), expected.layers[l].mean, 1e-9) << entry.name;
      EXPECT_EQ(static_cast<double>(seen.layers[l].largest()), expected.layers[l].max) << entry.name;
    }
  }
}

TEST(Recorder, WindowsBeginAnew) {
  const auto model = tiny_model(tiny_config("post"), *method_options("fixed_span"), at::kFloat);
  const Tokens tokens = random_text(20);
  EvaluationWindows blocks(tokens, kVocabulary - 1, 1, kBlock, false);
  const auto seen = record_memory(*model, blocks);
  EXPECT_EQ(seen.begins, (std::vector<int64_t>{0, 8, 16}));
  EXPECT_EQ(seen.ends, (std::vector<int32_t>{tokens[7], tokens[15], tokens[19]}));
  EXPECT_EQ(seen.tokens[8], kVocabulary - 1);
  EXPECT_EQ(seen.layers[0].held[6], 1);
  EXPECT_EQ(seen.layers[0].held[7], 0);
  EXPECT_EQ(seen.layers[0].sizes[8], 0);
  EXPECT_EQ(seen.layers[0].there, std::vector<uint8_t>(20, 1));
}

TEST(Recorder, StopsAtTheLimit) {
  EXPECT_EQ(record("fixed_span", {}, 13).tokens.size(), 13u);
  EXPECT_EQ(record("fixed_span", {}, 1000).tokens.size(), kLength - 1u);
}

}  // namespace
}  // namespace lapse
