// A memory's streams: one begins anew, a memory that an error left half read, tokens that do not fit.
#include <gtest/gtest.h>

#include <stdexcept>

#include "lapse/core/error.h"
#include "lapse/core/testing.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

/// Methods, and those whose streams start from zeros.
const std::vector<std::pair<std::string, Settings>> kStreams = {
    {"expire_span", {}},   {"expire_span", {{"initial_memory", "zeros"}}},
    {"fixed_span", {}},    {"fixed_span", {{"initial_memory", "zeros"}}},
    {"compressive", {}},   {"compressive", {{"initial_memory", "zeros"}}},
    {"adaptive_span", {}}, {"selective_attention", {}},
    {"sink_window", {}},   {"local_global", {}}};

std::string name_of(const std::pair<std::string, Settings>& stream) {
  return stream.first + (stream.second.empty() ? "" : " from zeros");
}

TEST(Streams, OneBeginsAnewAndTheOthersGoOn) {
  for (const auto& stream : kStreams)
    for (const bool training : {true, false})
      for (const int64_t length : {1, 4})
        for (const int64_t room : {0, 9}) {
          if (training && room > 0) continue;
          const auto m = tiny_model(tiny_config("post"), *method_options(stream.first, stream.second), at::kFloat);
          const at::Tensor before = random_tokens(3, 40, 5), after = random_tokens(3, 40, 6);
          ModelMemory memory = m->begin(3, stored_of(training));
          if (room > 0) memory.reserve(room);
          const std::vector<int64_t> lengths(40 / length, length);
          run(*m, memory, before, lengths);
          ModelMemory on = memory, fresh = m->begin(3, stored_of(training));
          m->reset(memory, {1});
          const at::Tensor got = run(*m, memory, after, lengths), other = run(*m, on, after, lengths),
                           anew = run(*m, fresh, after, lengths);
          const auto what = name_of(stream) + (training ? ", training" : "") + ", " + std::to_string(length);
          EXPECT_LE(difference(got[0], other[0]), 1e-5) << what;
          EXPECT_LE(difference(got[2], other[2]), 1e-5) << what;
          EXPECT_LE(difference(got[1], anew[1]), 1e-5) << what;
          EXPECT_GT(difference(other[1], anew[1]), 1e-3) << what;  // else this tests nothing
        }
}

TEST(Streams, AreNumberedWhenTheyBeginAnew) {
  const auto m = tiny_model(tiny_config("post"), *method_options("fixed_span"), at::kFloat);
  ModelMemory memory = m->begin(2, Stored::projections);
  EXPECT_THROW(m->reset(memory, {2}), Error);
  EXPECT_THROW(m->reset(memory, {-1}), Error);
  m->reset(memory, {});
}

TEST(Streams, NamedTwiceBeginOnce) {
  const auto zeros = method_options("fixed_span", {{"initial_memory", "zeros"}});
  const auto m = tiny_model(tiny_config("post"), *zeros, at::kFloat);
  ModelMemory memory = m->begin(2, Stored::projections);
  const int64_t rows = memory.layers[0].rows();
  ASSERT_GT(rows, 0);
  m->reset(memory, {1, 1, 0, 1});
  EXPECT_EQ(memory.layers[0].rows(), rows);
}

TEST(Streams, SavedWithRoomAreTheSame) {
  for (const auto& stream : kStreams) {
    const auto m = tiny_model(tiny_config("post"), *method_options(stream.first, stream.second), at::kFloat);
    const at::Tensor tokens = random_tokens(3, 60);
    ModelMemory memory = m->begin(3, Stored::projections);
    memory.reserve(7);
    run(*m, memory, tokens, std::vector<int64_t>(40, 1));
    ModelMemory again{{}, memory.clock.clone(), memory.stored};
    for (const auto& table : memory.layers) {
      again.layers.push_back(MemoryTable::restore(table.offsets(), table.columns(), table.unsifted()));
      EXPECT_FALSE(is_kind(again.layers.back().kind(), RowKind::spare).any().item<bool>());
      EXPECT_EQ(again.layers.back().unsifted(), table.unsifted());
    }
    const std::vector<int64_t> rest(20, 1);
    const at::Tensor next = tokens.narrow(1, 40, 20);
    EXPECT_LE(difference(run(*m, again, next, rest), run(*m, memory, next, rest)), 1e-5) << name_of(stream);
  }
}

// An error after all layers have read, which nothing finds before.
TEST(Streams, HalfReadAreNotReadOn) {
  const auto m = tiny_model(tiny_config("post"), *method_options("tova", {{"budget", "6"}}), at::kFloat);
  const at::Tensor tokens = random_tokens(1, 20);
  ModelMemory memory = m->begin(1, Stored::projections);
  run(*m, memory, tokens, {8});
  const ModelMemory before = memory;
  EXPECT_THROW(m->forward(tokens.narrow(1, 8, 4), memory, {.places = at::full({1}, 99, at::kLong)}), c10::Error);
  EXPECT_TRUE(memory.torn);
  EXPECT_NE(error_of([&] { run(*m, memory, tokens, {1}); }).find("half way"), std::string::npos);
  EXPECT_NE(error_of([&] { m->reset(memory, {0}); }).find("half way"), std::string::npos);
  ModelMemory copy = before, fresh = m->begin(1, Stored::projections);
  run(*m, fresh, tokens, {8});
  const at::Tensor next = tokens.narrow(1, 8, 12);
  EXPECT_TRUE(run(*m, copy, next, {12}).equal(run(*m, fresh, next, {12})));
}

TEST(Streams, TokensThatDoNotFitLeaveThemAsTheyWere) {
  for (const std::string method : {"expire_span", "tova"}) {  // block by block, and token by token
    const auto m = tiny_model(tiny_config("post"), *method_options(method), at::kFloat);
    const at::Tensor tokens = random_tokens(2, 12);
    ModelMemory memory = m->begin(2, Stored::projections), same = m->begin(2, Stored::projections);
    run(*m, memory, tokens, {4}), run(*m, same, tokens, {4});
    const at::Tensor next = tokens.narrow(1, 4, 4);
    at::Tensor beyond = next.clone(), below = next.clone();
    beyond[1][3] = kVocabulary, below[0][0] = -1;
    for (const at::Tensor& wrong :
         {beyond, below, next.to(at::kInt), next[0], random_tokens(3, 4), random_tokens(1, 4)})
      EXPECT_THROW(m->forward(wrong, memory, {}), Error) << wrong.sizes();
    const at::Tensor turned = at::zeros({4, 2}, at::kLong), whole = at::zeros({2, 4}, at::kLong);
    for (const BlockOptions& wrong : {BlockOptions{.target = turned}, BlockOptions{.target = whole.to(at::kInt)},
                                      BlockOptions{.lengths = at::ones({1}, at::kLong)}, BlockOptions{.begins = whole}})
      EXPECT_THROW(m->forward(next, memory, wrong), Error);
    EXPECT_FALSE(memory.torn);
    EXPECT_TRUE(run(*m, memory, next, {4}).equal(run(*m, same, next, {4})));
  }
}

}  // namespace
}  // namespace lapse
