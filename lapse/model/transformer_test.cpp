// What holds of every forgetting method: the same numbers however a text is cut into blocks, in training and in
// evaluation, and whether or not what has expired is deleted.
#include "lapse/model/transformer.h"

#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kStreams = 3, kLength = 72;

/// Method, norm, initial memory.
class EveryMethod : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {
 protected:
  std::unique_ptr<MethodOptions> options() const {
    return method_options(std::get<0>(GetParam()), {{"initial_memory", std::get<2>(GetParam())}});
  }
  ModelConfig config() const { return tiny_config(std::get<1>(GetParam())); }
  std::unique_ptr<Transformer> model(at::ScalarType type) const { return tiny_model(config(), *options(), type); }

  const Threads one_{1};
};

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& entry : method_table()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EveryMethod,
                         testing::Combine(testing::ValuesIn(method_names()), testing::Values("post", "pre"),
                                          testing::Values("empty", "zeros")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
                                  std::get<2>(info.param);
                         });

std::vector<int64_t> blocks_of(int64_t length) { return std::vector<int64_t>(kLength / length, length); }

const std::vector<int64_t> kMixed = {8, 1, 1, 1, 5, 16, 1, 2, 13, 1, 8, 15};

TEST_P(EveryMethod, DecodesAsItReads) {
  // Logits of order 1 from sums of some ten terms in two layers: 1e-15 and 1e-6, with room for the softmax's growth.
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-10), std::pair(at::kFloat, 1e-4)}) {
    const auto m = model(type);
    const Tensor tokens = random_tokens(kStreams, kLength), whole = run(*m, false, tokens, {kLength});
    for (const auto& lengths : {blocks_of(8), blocks_of(6), blocks_of(1), kMixed})
      EXPECT_LE(difference(run(*m, false, tokens, lengths), whole), tolerance) << lengths[0] << ", " << lengths[1];
  }
}

TEST_P(EveryMethod, DoesNotDependOnTheOtherStreams) {
  const auto m = model(at::kDouble);
  const Tensor tokens = random_tokens(kStreams, kLength), together = run(*m, false, tokens, kMixed);
  for (int64_t b = 0; b < kStreams; ++b)
    EXPECT_LE(difference(run(*m, false, tokens.narrow(0, b, 1), kMixed), together.narrow(0, b, 1)), 1e-10);
}

TEST_P(EveryMethod, TrainsOnWhatItEvaluates) {
  if (model(at::kFloat)->layers()[0].attention().method().one_by_one())
    return;  // they evict rows outside training only
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-10), std::pair(at::kFloat, 1e-4)}) {
    const auto m = model(type);
    const Tensor tokens = random_tokens(kStreams, kLength);
    EXPECT_LE(difference(run(*m, true, tokens, blocks_of(kBlock)), run(*m, false, tokens, blocks_of(kBlock))),
              tolerance);
  }
}

TEST_P(EveryMethod, ReadsNoFurtherThanTheTokensBefore) {
  const auto m = model(at::kDouble);
  const Tensor tokens = random_tokens(kStreams, 24), changed = tokens.clone();
  changed.select(1, 13).add_(1).remainder_(kVocabulary);
  const Tensor a = run(*m, false, tokens, {24}), b = run(*m, false, changed, {24});
  EXPECT_EQ(difference(a.narrow(1, 0, 13), b.narrow(1, 0, 13)), 0);
  EXPECT_GT(difference(a.narrow(1, 13, 1), b.narrow(1, 13, 1)), 1e-3);
  EXPECT_GT(difference(a.narrow(1, 14, 1), b.narrow(1, 14, 1)), 1e-6);  // and remembers
}

TEST_P(EveryMethod, GivesTheLogitsOfSomePositionsOnly) {
  const Tensor tokens = random_tokens(kStreams, kBlock);
  for (const bool training : {true, false})
    for (const auto& places : {at::tensor({0, 7, 8, 21}, at::kLong), at::empty({0}, at::kLong)}) {
      const auto some = model(at::kDouble), all = model(at::kDouble);
      ModelMemory memory = some->begin(kStreams, stored_of(training)),
                  other = all->begin(kStreams, stored_of(training));
      const Tensor got = some->forward(tokens, memory, {.places = places}).logits;
      const Tensor whole = all->forward(tokens, other, {}).logits;
      const Tensor expected = whole.flatten(0, 1).index_select(0, places);
      ASSERT_EQ(got.sizes(), expected.sizes());
      if (got.numel() > 0) {
        EXPECT_LE(difference(got, expected), 1e-10);
      }
      for (size_t l = 0; l < memory.layers.size(); ++l) EXPECT_EQ(memory.layers[l].rows(), other.layers[l].rows());
      if (!training) continue;
      got.square().sum().backward(), expected.square().sum().backward();
      const auto with = some->parameters(), without = all->parameters();
      for (size_t i = 0; i < with.size(); ++i) {
        const Tensor expected = without[i].second->grad(), got = with[i].second->grad();
        if (expected.defined() && expected.abs().max().item<double>() > 0) {
          ASSERT_TRUE(got.defined()) << with[i].first;
          EXPECT_LE(difference(got, expected), 1e-10) << with[i].first;
        } else if (got.defined()) {
          EXPECT_EQ(got.abs().max().item<double>(), 0) << with[i].first;
        }
      }
    }
}

// ----- deletion
// --------------------------------------------------------------------------------------------------------

/// A method that deletes nothing.
class KeepAll : public Method {
 public:
  explicit KeepAll(std::unique_ptr<Method> inner) : inner_(std::move(inner)) {}
  NamedTensors parameters() override { return inner_->parameters(); }
  void after_update() override { inner_->after_update(); }
  Columns describe(const Tensor& x) const override { return inner_->describe(x); }
  Reading read(const Query& query, const Rows& rows) const override { return inner_->read(query, rows); }
  Tensor first(const RowView& rows) const override { return inner_->first(rows); }
  Tensor until(const RowView& rows) const override { return inner_->until(rows); }
  Tensor until_among(const Rows& rows) const override { return inner_->until_among(rows); }
  Tensor released(const Tensor& until, Stored) const override { return until + (int64_t{1} << 40); }
  Columns state(at::IntArrayRef shape, const at::TensorOptions& real) const override {
    return inner_->state(shape, real);
  }
  bool pools() const override { return inner_->pools(); }
  bool one_by_one() const override { return inner_->one_by_one(); }
  PooledRows pool(const MemoryTable& table, const Tensor& start, int64_t length) const override {
    return inner_->pool(table, start, length);
  }
  std::vector<int64_t> initial_slots() const override { return inner_->initial_slots(); }
  Columns tell(const Rows& rows) const override { return inner_->tell(rows); }

 private:
  std::unique_ptr<Method> inner_;
};

class KeepAllOptions : public MethodOptions {
 public:
  explicit KeepAllOptions(std::unique_ptr<MethodOptions> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  Fields fields() override { return inner_->fields(); }
  int64_t positions(const ModelShape& shape) const override { return inner_->positions(shape); }
  int64_t initial_rows(const ModelShape& shape) const override { return inner_->initial_rows(shape); }
  int64_t longest(const ModelShape& shape) const override { return inner_->longest(shape); }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t layer, Random& random) const override {
    return std::make_unique<KeepAll>(inner_->make(shape, layer, random));
  }

 private:
  std::unique_ptr<MethodOptions> inner_;
};

/// Timesteps since the beginning: neither initial rows nor what was made of others.
int64_t timesteps_in(const ModelMemory& memory) {
  int64_t rows = 0;
  for (const auto& table : memory.layers) rows += is_token(table.kind()).sum().item<int64_t>();
  return rows;
}

TEST_P(EveryMethod, NeverMissesWhatItDeleted) {
  const auto m = model(at::kDouble), all = tiny_model(config(), KeepAllOptions(options()), at::kDouble);
  const Tensor tokens = random_tokens(kStreams, kLength);
  for (bool training : {false, true})
    for (const auto& lengths : {blocks_of(kBlock), kMixed}) {
      if (!training && m->layers()[0].attention().method().one_by_one())
        continue;  // they delete what could still be read
      ModelMemory memory = m->begin(kStreams, stored_of(training)),
                  complete = all->begin(kStreams, stored_of(training));
      EXPECT_LE(difference(run(*m, memory, tokens, lengths), run(*all, complete, tokens, lengths)), 1e-10);
      EXPECT_EQ(timesteps_in(complete), 2 * kStreams * kLength);
      EXPECT_LT(timesteps_in(memory), 2 * kStreams * 40)  // spans of up to 33 and a ramp of 6.5
          << "give the method small options in transformer_testing.h";
    }
}

TEST_P(EveryMethod, DeletesExactlyWhatNoLaterQueryCanRead) {
  const auto m = model(at::kDouble);
  const Tensor tokens = random_tokens(kStreams, kLength);
  ModelMemory memory = m->begin(kStreams, Stored::inputs);
  run(*m, memory, tokens, blocks_of(kBlock));
  for (size_t l = 0; l < memory.layers.size(); ++l) {
    const auto& table = memory.layers[l];
    const Attention& attention = m->layers()[l].attention();
    if (std::get<0>(GetParam()) == std::string("adaptive_span")) {  // its rows go in steps, some after their weights
      const Columns none;
      const Tensor until = attention.method().until({table.time(), table.kind(), none, Stored::inputs});
      EXPECT_TRUE((until > memory.clock.index_select(0, table.sample())).all().item<bool>());
    } else {
      EXPECT_TRUE(attention.alive(table, memory.clock).all().item<bool>());
    }
    // But for what stays for ever: the first rows of a stream, of which there are four.
    const Tensor later = m->layers()[l].attention().alive(table, memory.clock + 1000);
    EXPECT_FALSE(at::logical_and(later, table.time() >= 4).any().item<bool>());
    EXPECT_TRUE((table.time() < kLength).all().item<bool>());
  }
}

// ----- memory
// ----------------------------------------------------------------------------------------------------------

TEST_P(EveryMethod, CopiesOfAMemoryGoTheirOwnWays) {
  const auto m = model(at::kDouble);
  for (int64_t B : {1, 2}) {
    const Tensor prompt = random_tokens(B, 21, 5), one = random_tokens(B, 9, 6), two = random_tokens(B, 9, 7);
    ModelMemory memory = m->begin(B, Stored::projections);
    run(*m, memory, prompt, {8, 8, 5});
    ModelMemory copy = memory;
    std::vector<Tensor> ones, twos;
    for (int64_t t = 0; t < 9; ++t) {  // turn by turn
      ones.push_back(run(*m, memory, one.narrow(1, t, 1), {1}));
      twos.push_back(run(*m, copy, two.narrow(1, t, 1), {1}));
    }
    EXPECT_LE(difference(lapse::cat(ones, 1), run(*m, false, lapse::cat({prompt, one}, 1), {30}).narrow(1, 21, 9)),
              1e-10);
    EXPECT_LE(difference(lapse::cat(twos, 1), run(*m, false, lapse::cat({prompt, two}, 1), {30}).narrow(1, 21, 9)),
              1e-10);
  }
}

TEST_P(EveryMethod, BeginsWithItsInitialRows) {
  const auto m = model(at::kDouble);
  const int64_t rows = options()->initial_rows(m->shape());
  const auto slots = m->layers()[0].attention().method().initial_slots();
  const Tensor times = lapse::cat({at::tensor(slots, at::kLong), at::arange(-rows, 0, at::kLong)});
  const auto has_choice = [](const Fields& fields) {
    return std::any_of(fields.begin(), fields.end(), [](const Field& field) { return field.name == "initial_memory"; });
  };
  EXPECT_EQ(rows > 0, std::get<2>(GetParam()) == "zeros" && has_choice(options()->fields()));
  for (bool training : {false, true}) {
    const ModelMemory memory = m->begin(2, stored_of(training));
    EXPECT_TRUE(memory.clock.equal(at::zeros({2}, at::kLong)));
    for (const auto& table : memory.layers) {
      ASSERT_EQ(table.rows(), 2 * times.numel());
      if (rows == 0) continue;
      const bool hidden = table.columns().count("hidden"), key = table.columns().count("key");
      EXPECT_TRUE(table.time().equal(times.repeat({2})));
      EXPECT_TRUE((hidden || !training) && key == !training);
      EXPECT_TRUE(!training || table.column("hidden").equal(at::zeros({table.rows(), 12}, at::kDouble)));
    }
  }
}

TEST_P(EveryMethod, KeepsNoGraphOfEarlierBlocks) {
  const auto m = model(at::kFloat);
  for (int64_t B : {1, 2}) {
    ModelMemory memory = m->begin(B, Stored::inputs);
    Tensor last;
    for (int64_t i = 0; i < 4; ++i) {
      const auto y = m->forward(random_tokens(B, kBlock, i), memory, {});
      // One block late: the graph of a block must survive the next one's changes of the memory.
      if (last.defined()) last.backward();
      last = y.logits.square().mean() + y.cost;
      for (const auto& table : memory.layers)
        for (const auto& [name, values] : table.columns()) EXPECT_FALSE(values.requires_grad()) << name;
    }
  }
  for (const auto& [name, tensor] : m->parameters()) EXPECT_TRUE(tensor->grad().isfinite().all().item<bool>()) << name;
}

}  // namespace
}  // namespace lapse
