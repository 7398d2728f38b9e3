// Acting one step at a time, for every method: what was played, and that it is what the block that learns reads.
#include "lapse/train/agent.h"

#include <gtest/gtest.h>

#include "lapse/core/error.h"
#include "lapse/model/policy.h"
#include "lapse/ops/aten.h"
#include "lapse/train/agent_testing.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kAgents = 7, kSteps = 20;
constexpr int64_t kShared = 70;  // so many agents that threads share them
constexpr double kDiscount = 0.9;

std::vector<Script> scripts(int64_t agents = kAgents, int64_t length = 61) {
  std::vector<Script> all;
  for (int64_t i = 0; i < agents; ++i) all.push_back(random_script(i, length, 6));
  return all;
}

class Acting : public testing::TestWithParam<std::string> {
 protected:
  bool one_by_one(const Transformer& model) const { return model.layers()[0].attention().method().one_by_one(); }
};

// Everything that is played follows from the outputs of the block that learns: actions from its logits and each agent's
// draws, returns from the script's rewards and its values, by a loop in double.
TEST_P(Acting, PlaysWhatTheBlockSays) {
  const auto model = tiny_agent(GetParam());
  if (one_by_one(*model)) GTEST_SKIP() << "budgets hold where rows are projected only";
  ASSERT_GT(acting_groups(kShared, 1), 1);
  const auto script = scripts(kShared);
  Agents agents(ScriptedOptions(script), kShared, /*seed=*/5);
  std::vector<Random> draws;
  for (int64_t i = 0; i < kShared; ++i) draws.emplace_back(5, "action." + std::to_string(i));
  std::vector<ModelMemory> memory = {model->begin(kShared, Stored::inputs)};
  double episodes = 0, rewards = 0, steps = 0;
  EpisodeSums sums;
  for (int64_t block = 0; block < 4; ++block) {
    const auto played = agents.play(*model, memory, kSteps, kDiscount);
    sums += played.episodes;
    at::NoGradGuard no_grad;
    const Tensor y = model->forward(played.batch.input, memory[0], {.begins = played.batch.begins}).logits;
    ModelMemory after = memory[0];
    for (int64_t i = 0; i < kShared; ++i) {
      const auto now = [&](int64_t t) { return script[i][(block * kSteps + t) % script[i].size()]; };
      const bool ended = block * kSteps > 0 && script[i][(block * kSteps - 1) % script[i].size()].end;
      EXPECT_EQ(played.batch.begins[i][0].item<bool>(), block == 0 || ended);
      for (int64_t t = 0; t < kSteps; ++t) {
        const Tensor bits = played.batch.input[i][t];
        const auto seen = now(t).bits;
        for (int64_t w = 0; w < bits.size(0); ++w)
          EXPECT_EQ(bits[w].item<int64_t>(), w < std::ssize(seen) ? seen[w] : -1);
        const Tensor logits = y[i][t].contiguous();
        EXPECT_EQ(played.batch.target[i][t].item<int64_t>(),
                  choose(logits.const_data_ptr<float>(), kActions, draws[i]));
        episodes += now(t).end;
      }
      // The state after the block, read by a block of one more step.
      Tensor bits = at::full({1, 1, kCells * kWords}, -1, at::kLong), begins = at::full({1, 1}, now(kSteps - 1).end);
      for (size_t w = 0; w < now(kSteps).bits.size(); ++w) bits[0][0][w].fill_(now(kSteps).bits[w]);
      const Tensor all = bits.expand({kShared, 1, -1}), marks = begins.expand({kShared, 1});
      ModelMemory copy = after;
      double value = Policy(model->forward(all, copy, {.begins = marks}).logits[i][0]).value.item<double>();
      for (int64_t t = kSteps - 1; t >= 0; --t) {
        value = now(t).reward + (now(t).end ? 0 : kDiscount * value);
        EXPECT_NEAR(played.batch.more.at("returns")[i][t].item<double>(), value, 1e-5);
      }
    }
  }
  // What ended came to: the scripts once more.
  for (const auto& one : script) {
    double reward = 0, length = 0;
    for (int64_t t = 0; t < 4 * kSteps; ++t) {
      const auto& step = one[t % one.size()];
      reward += step.reward, ++length;
      if (step.end) rewards += reward, steps += length, reward = length = 0;
    }
  }
  EXPECT_EQ(sums.episodes, episodes);
  EXPECT_EQ(sums.score, episodes);
  EXPECT_EQ(sums.steps, steps);
  EXPECT_NEAR(sums.reward, rewards, 1e-4);
}

// Two streams that differ in their first episode alone are told apart in it, and in no later one.
TEST_P(Acting, NothingOfAnEndedEpisodeIsRead) {
  for (const int64_t end : {int64_t{3}, kSteps - 1, kSteps + 4}) {  // in the block, with it, and in the next
    std::vector<Script> pair(2, random_script(3, 3 * kSteps, 1000));
    pair[1][1].bits = {0, 5}, pair[0][1].bits = {2, 3};
    for (auto& script : pair) script[end].end = true;
    const auto model = tiny_agent(GetParam());
    Agents agents(ScriptedOptions(pair), 2, 1);
    std::vector<ModelMemory> memory = {model->begin(2, Stored::inputs)};
    std::vector<Tensor> logits, acted, returns;
    for (int64_t block = 0; block < 3; ++block) {
      const auto played = agents.play(*model, memory, kSteps, kDiscount);
      at::NoGradGuard no_grad;
      logits.push_back(model->forward(played.batch.input, memory[0], {.begins = played.batch.begins}).logits);
      returns.push_back(played.batch.more.at("returns"));
    }
    const Tensor y = lapse::cat(logits, 1), r = lapse::cat(returns, 1);
    EXPECT_GT((y[0] - y[1]).narrow(0, 0, end + 1).abs().max().item<double>(), 1e-3);
    // Products of other rows beside the same may round differently.
    EXPECT_LT((y[0] - y[1]).narrow(0, end + 1, 3 * kSteps - end - 1).abs().max().item<double>(), 1e-6);
    // Returns end with V of the state after a block, which acting read.
    const int64_t later = (end / kSteps + 1) * kSteps;
    EXPECT_LT((r[0] - r[1]).narrow(0, later, 3 * kSteps - later).abs().max().item<double>(), 1e-5);
  }
}

// The table is long and the episodes are many here: a block as in a real run.
TEST_P(Acting, ABlockOfARealRunIsActedAsItIsRead) {
  const int64_t agents = 64, steps = 100;
  std::vector<Script> many;
  for (int64_t i = 0; i < agents; ++i) many.push_back(random_script(i, 2 * steps, 40));
  const auto model = tiny_agent(GetParam(), 2);
  if (one_by_one(*model)) GTEST_SKIP() << "budgets hold where rows are projected only";
  Agents all(ScriptedOptions(many), agents, 1);
  std::vector<ModelMemory> memory = {model->begin(agents, Stored::inputs)};
  for (int64_t block = 0; block < 2; ++block) {
    const auto played = all.play(*model, memory, steps, kDiscount);
    at::NoGradGuard no_grad;
    ModelMemory acting = acting_memory(*model, memory[0], 0, agents, steps);
    std::vector<Tensor> one;
    for (int64_t t = 0; t < steps; ++t)
      one.push_back(
          model->forward(played.batch.input.narrow(1, t, 1), acting, {.begins = played.batch.begins.narrow(1, t, 1)})
              .logits);
    const Tensor y = model->forward(played.batch.input, memory[0], {.begins = played.batch.begins}).logits;
    EXPECT_LE(difference(lapse::cat(one, 1), y), 1e-5);
  }
}

TEST_P(Acting, GoesOnFromASavedState) {
  const auto model = tiny_agent(GetParam());
  const ScriptedOptions options(scripts());
  Agents agents(options, kAgents, 1), again(options, kAgents, 1);
  std::vector<ModelMemory> memory = {model->begin(kAgents, Stored::inputs)};
  agents.play(*model, memory, kSteps, kDiscount);
  again.set_state(agents.state());
  const auto a = agents.play(*model, memory, kSteps, kDiscount), b = again.play(*model, memory, kSteps, kDiscount);
  EXPECT_TRUE(a.batch.input.equal(b.batch.input) && a.batch.target.equal(b.batch.target) &&
              a.batch.begins.equal(b.batch.begins) && a.batch.more.at("returns").equal(b.batch.more.at("returns")));
  EXPECT_EQ(a.episodes.reward, b.episodes.reward);
  EXPECT_EQ(a.episodes.steps, b.episodes.steps);
}

TEST_P(Acting, PartsAndThreadsPlayTheSame) {
  const auto model = tiny_agent(GetParam());
  std::vector<Tensor> actions, returns;
  for (const auto& [parts, threads] : {std::pair{1, 1}, {1, 3}, {1, 16}, {2, 1}, {2, 4}}) {
    const Threads scope(threads);
    Agents agents(ScriptedOptions(scripts(kShared)), kShared, 1);
    std::vector<ModelMemory> memory;
    for (int p = 0; p < parts; ++p) memory.push_back(model->begin(kShared / parts, Stored::inputs));
    const auto played = agents.play(*model, memory, kSteps, kDiscount);
    actions.push_back(played.batch.target), returns.push_back(played.batch.more.at("returns"));
    EXPECT_TRUE(actions.back().equal(actions[0]));
    EXPECT_LT((returns.back() - returns[0]).abs().max().item<double>(), 1e-5);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& row : method_table()) all.push_back(row.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(, Acting, testing::ValuesIn(names()), [](const auto& p) { return p.param; });

TEST(Agents, RefuseAForeignState) {
  const ScriptedOptions options(scripts());
  Agents agents(options, kAgents, 1), fewer(options, kAgents - 1, 1);
  EXPECT_THROW(agents.set_state(fewer.state()), Error);
  EXPECT_THROW(agents.set_state({}), Error);
  Columns more = agents.state(), beyond = agents.state();
  more["other"] = at::zeros({1});
  EXPECT_THROW(agents.set_state(more), Error);
  beyond["worlds"][2][0] = 1000;
  EXPECT_THROW(agents.set_state(beyond), Error);
  EXPECT_NO_THROW(agents.set_state(agents.state()));
}

TEST(Agents, ChooseByTheSoftmax) {
  const float logits[] = {0, 1000.5F, 1000};
  Random random(1, "draws");
  EXPECT_EQ(choose(logits, 3, random, /*greedy=*/true), 1);
  EXPECT_EQ(random.counter(), 0U);
  int64_t counts[3] = {};
  constexpr int64_t kDraws = 100'000;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[choose(logits, 3, random)];
  EXPECT_EQ(counts[0], 0);
  const double expected = 1 / (1 + std::exp(-0.5));
  EXPECT_NEAR(static_cast<double>(counts[1]) / kDraws, expected, 5 * std::sqrt(expected * (1 - expected) / kDraws));
}

}  // namespace
}  // namespace lapse
