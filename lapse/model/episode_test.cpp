// Episodes that begin within a block, and memories of inputs that are projected: for every method.
#include <gtest/gtest.h>

#include <thread>

#include "lapse/core/error.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// Two streams and three blocks; in the first stream episodes begin at times 3 (twice in a block), 6 and 19, in the
/// second at 16, a block's first token.
constexpr int64_t kStreams = 2, kLength = 3 * kBlock;
Tensor begins() {
  Tensor all = at::zeros({kStreams, kLength}, at::kBool);
  for (const int64_t t : {3, 6, 19}) all[0][t].fill_(true);
  all[1][16].fill_(true);
  return all;
}

class Episodes : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Transformer> model(uint64_t seed = 1, const std::string& budget = "5") const {
    const auto options = method_options(GetParam(), {{"max_span", "9"}, {"size", "6"}, {"rate", "2"}, {"budget", "5"}});
    set_fields(options->reading_fields(), {{"budget", budget}});
    ModelConfig config = tiny_config("pre");
    config.attend_self = true;
    return tiny_model(config, *options, at::kDouble, seed);
  }

  /// Logits [B, T, V] of tokens from time `from` on, in blocks of `length`.
  static Tensor read(Transformer& model, ModelMemory& memory, const Tensor& tokens, const Tensor& begins,
                     int64_t length) {
    std::vector<Tensor> all;
    for (int64_t t = 0; t < tokens.size(1); t += length) {
      const int64_t n = std::min(length, tokens.size(1) - t);
      BlockOptions options;
      if (begins.defined()) options.begins = begins.narrow(1, t, n);
      all.push_back(model.forward(tokens.narrow(1, t, n), memory, options).logits);
    }
    return lapse::cat(all, 1);
  }
};

// An episode's logits are those of a stream that begins with it, at the same time.
TEST_P(Episodes, ReadNothingOfWhatWasBefore) {
  at::NoGradGuard no_grad;
  const auto m = model();
  const Tensor tokens = random_tokens(kStreams, kLength), marks = begins();
  for (const Stored stored : {Stored::inputs, Stored::projections})
    for (const int64_t length : {kBlock, int64_t{1}, int64_t{5}}) {
      ModelMemory memory = m->begin(kStreams, stored);
      const Tensor all = read(*m, memory, tokens, marks, length);
      for (int64_t b = 0; b < kStreams; ++b)
        for (int64_t from = 0, t = 1; t <= kLength; ++t) {
          if (t < kLength && !marks[b][t].item<bool>()) continue;
          ModelMemory own = m->begin(1, stored);
          own.clock = own.clock + from;
          Tensor first = at::zeros({1, t - from}, at::kBool);
          first[0][0].fill_(true);
          const Tensor expected = read(*m, own, tokens.narrow(0, b, 1).narrow(1, from, t - from), first, kBlock);
          EXPECT_LE(difference(all.narrow(0, b, 1).narrow(1, from, t - from), expected), 1e-12)
              << "projections " << (stored == Stored::projections) << ", stream " << b << ", episode from " << from
              << " to " << t << ", blocks of " << length;
          from = t;
        }
      if (length == 1) continue;  // then rows may stay for a while
      for (const auto& table : memory.layers) {
        if (table.rows() == 0) continue;
        EXPECT_GE(table.time().min().item<int64_t>(), 16) << "what was before the last episodes is gone";
      }
    }
}

// Sinks are an episode's first rows, not a stream's: it is read as if the stream began with it.
TEST(SinkWindow, EpisodesHaveSinksOfTheirOwn) {
  at::NoGradGuard no_grad;
  const auto options = method_options("sink_window", {{"max_span", "40"}, {"sinks", "2"}, {"window", "3"}});
  const auto m = tiny_model(tiny_config("pre"), *options, at::kDouble);
  const Tensor tokens = random_tokens(2, 2 * kBlock);
  Tensor marks = at::zeros({2, 2 * kBlock}, at::kBool);
  marks[0][5].fill_(true), marks[1][kBlock].fill_(true);
  for (const Stored stored : {Stored::inputs, Stored::projections})
    for (const int64_t length : {2 * kBlock, kBlock, int64_t{3}, int64_t{1}}) {
      ModelMemory memory = m->begin(2, stored);
      std::vector<Tensor> all;
      for (int64_t t = 0; t < 2 * kBlock; t += length) {
        const int64_t n = std::min(length, 2 * kBlock - t);
        all.push_back(
            m->forward(tokens.narrow(1, t, n), memory, {.exact = true, .begins = marks.narrow(1, t, n)}).logits);
      }
      for (int64_t b = 0; b < 2; ++b) {
        const int64_t from = b == 0 ? 5 : kBlock, n = 2 * kBlock - from;
        ModelMemory own = m->begin(1, stored);
        const Tensor alone = m->forward(tokens.narrow(0, b, 1).narrow(1, from, n), own, {.exact = true}).logits;
        EXPECT_LE(difference(lapse::cat(all, 1).narrow(0, b, 1).narrow(1, from, n), alone), 1e-12)
            << b << ", " << length;
        for (size_t l = 0; l < own.layers.size(); ++l) {
          const int64_t held = memory.layers[l].first_row(b + 1) - memory.layers[l].first_row(b);
          EXPECT_EQ(held, own.layers[l].rows());
          EXPECT_EQ(held, 5);
        }
      }
    }
}

// Token by token with projections what a block of inputs gives, gradients' way; also after the weights moved.
TEST_P(Episodes, ActAsTheBlockThatLearns) {
  const auto m = model(2, /*budget=*/"0");
  const Tensor tokens = random_tokens(kStreams, kLength, 2), marks = begins();
  ModelMemory memory = m->begin(kStreams, Stored::inputs);
  if (m->layers()[0].attention().method().one_by_one()) GTEST_SKIP() << "budgets hold where rows are projected only";
  for (int64_t block = 0; block < 3; ++block) {
    const Tensor own = tokens.narrow(1, block * kBlock, kBlock), mark = marks.narrow(1, block * kBlock, kBlock);
    Tensor acted;
    {
      at::NoGradGuard no_grad;
      ModelMemory actor = m->projected(memory);
      acted = read(*m, actor, own, mark, 1);
    }
    const auto y = m->forward(own, memory, {.begins = mark});
    EXPECT_LE(difference(acted, y.logits.detach()), 1e-12) << "block " << block;
    (y.logits.square().mean() + y.cost).backward();
    at::NoGradGuard no_grad;
    for (auto& [name, parameter] : m->parameters())
      if (parameter->grad().defined()) parameter->sub_(parameter->grad() * 0.1), parameter->mutable_grad().zero_();
    m->after_update();
  }
}

// Threads that act one token at a time, each for streams of its own, with room reserved or not: as all streams' block
// at once. Episodes end at random.
TEST_P(Episodes, ThreadsActAsTheBlock) {
  constexpr int64_t kThreads = 3, kEach = 3, kSteps = 5 * kBlock;
  for (const auto type : {at::kDouble, at::kFloat})
    for (const int64_t room : {0, 3, 40}) {
      const auto m = model(3);
      m->to(type);
      const Tensor tokens = random_tokens(kThreads * kEach, kSteps, 3);
      Random random(3, "begins");
      Tensor marks = at::zeros({kThreads * kEach, kSteps}, at::kBool);
      for (int64_t i = 0; i < marks.numel(); ++i) marks.mutable_data_ptr<bool>()[i] = random.below(7) == 0;
      Tensor expected;
      std::vector<Tensor> acted(kThreads);
      {
        at::NoGradGuard no_grad;
        ModelMemory memory = m->begin(kThreads * kEach, Stored::projections);
        expected = read(*m, memory, tokens, marks, kSteps);
      }
      std::vector<std::thread> threads;
      for (int64_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          const at::NoGradGuard no_grad;
          ModelMemory memory = m->begin(kEach, Stored::projections);
          if (room > 0) memory.reserve(room);
          const auto own = [&](const Tensor& x) { return x.narrow(0, t * kEach, kEach); };
          acted[t] = read(*m, memory, own(tokens), own(marks), 1);
        });
      for (auto& thread : threads) thread.join();
      EXPECT_LE(difference(lapse::cat(acted), expected), type == at::kDouble ? 1e-12 : 1e-5)
          << type << ", room " << room;
    }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& row : method_table()) all.push_back(row.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(, Episodes, testing::ValuesIn(names()), [](const auto& p) { return p.param; });

TEST(EpisodesErrors, StartsFromZerosAndAbsolutePositionsAreRefused) {
  const auto zeros = method_options("fixed_span", {{"initial_memory", "zeros"}});
  const auto m = tiny_model(tiny_config("post"), *zeros, at::kFloat);
  ModelMemory memory = m->begin(1, Stored::inputs);
  const Tensor begins = at::ones({1, 3}, at::kBool);
  EXPECT_THROW(m->forward(random_tokens(1, 3), memory, {.begins = begins}), Error);
  ModelConfig config = tiny_config("post");
  config.positions = "absolute";
  const auto absolute = tiny_model(config, *method_options("fixed_span"), at::kFloat);
  ModelMemory window = absolute->begin(1, Stored::inputs);
  EXPECT_THROW(absolute->forward(random_tokens(1, 3), window, {.begins = begins}), Error);
}

}  // namespace
}  // namespace lapse
