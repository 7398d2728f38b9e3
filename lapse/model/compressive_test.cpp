// Compressive memory against a slow reading, query by query, of the rule; what it holds.
#include <gtest/gtest.h>

#include "lapse/memory/table_testing.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kSpan = 11, kRate = 3, kSlots = 4, kHeads = 2, kDim = 4, kWidth = 5;

std::unique_ptr<MethodOptions> options() {
  return method_options(
      "compressive",
      {{"max_span", std::to_string(kSpan)}, {"rate", std::to_string(kRate)}, {"size", std::to_string(kRate * kSlots)}});
}

Tensor random_normal(at::IntArrayRef shape, Random& random) {
  Tensor x = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<double>()[i] = random.normal();
  return x;
}

void insert(MemoryTable& table, const PooledRows& pooled) {
  if (!pooled.hidden.defined()) return;
  const Tensor kind = at::full_like(pooled.time, static_cast<int64_t>(RowKind::pooled), at::kByte);
  table.insert(pooled.sample, {{"hidden", pooled.hidden}, {"time", pooled.time}, {"kind", kind}});
}

/// Query t of a stream that began empty: its newest L timesteps, and slots tau = -L mod c whose first timestep is L ...
/// L + (C + 1) c - 1 old; position rows L + rank for slots.
Tensor read_slowly(const Tensor& q, const Tensor& hidden, const Tensor& wk, const Tensor& wv, const Tensor& position,
                   int64_t t) {
  std::vector<Tensor> x, p;
  for (int64_t a = 1; a <= kSpan && t - a >= 0; ++a) x.push_back(hidden[t - a]), p.push_back(position[a - 1]);
  for (int64_t tau = 0; tau <= t - kSpan; ++tau) {
    const int64_t rank = (t - tau - kSpan) / kRate;
    if ((tau + kSpan) % kRate != 0 || rank > kSlots) continue;
    x.push_back(hidden.narrow(0, tau, kRate).mean(0)), p.push_back(position[kSpan + rank]);
  }
  if (x.empty()) return at::zeros({kHeads, kDim}, at::kDouble);
  const Tensor all = at::stack(x);
  const Tensor k = at::linear(all, wk).view({-1, kHeads, kDim}), v = at::linear(all, wv).view({-1, kHeads, kDim});
  const Tensor logits = at::einsum("hd,nhd->hn", {q, k + at::stack(p).unsqueeze(1)}) / 2;
  return at::einsum("hn,nhd->hd", {at::softmax(logits, 1), v});
}

TEST(Compressive, ReadsAveragesByTheRule) {
  const ModelShape shape{1, kWidth, kHeads, kDim, kBlock};
  Random random(3, "compressive");
  const auto method = options()->make(shape, 0, random);
  const int64_t T = 64;
  const Tensor hidden = random_normal({T, kWidth}, random), q = random_normal({T, kHeads, kDim}, random);
  const Tensor wk = random_normal({kHeads * kDim, kWidth}, random), wv = random_normal({kHeads * kDim, kWidth}, random);
  const Tensor position = random_normal({options()->positions(shape), kDim}, random);
  ASSERT_EQ(position.size(0), kSpan + kSlots + 1);
  MemoryTable table(1);
  int64_t t = 0;
  for (const int64_t K : {8, 8, 1, 1, 5, 1, 16, 2, 1, 1, 1, 13, 6}) {
    const Tensor start = at::full({1}, t, at::kLong);
    append_at(table, start, {{"hidden", hidden.narrow(0, t, K).unsqueeze(0)}});
    insert(table, method->pool(table, start, K));
    const Tensor x = table.column("hidden");
    const auto heads = [&](const Tensor& w) { return at::linear(x, w).view({-1, kHeads, kDim}); };
    Rows rows{table, heads(wk), heads(wv), {}, {}, Stored::inputs};
    rows.until = method->until(rows.view());
    const auto y = method->read({{}, q.narrow(0, t, K).unsqueeze(0), start, position}, rows);
    for (int64_t i = 0; i < K; ++i)
      EXPECT_LE(difference(y.out[0][i], read_slowly(q[t + i], hidden, wk, wv, position, t + i)), 1e-12) << t + i;
    t += K;
    table.keep(rows.until > t);
    EXPECT_LE(table.rows(), kSpan + kSlots + 2) << "the newest, and slots that the next query may read";
  }
}

// Rows that a stream starts from are averaged together with its first tokens: 10 does not divide by 4.
TEST(Compressive, AveragesStartRowsWithTokens) {
  const auto settings =
      method_options("compressive", {{"max_span", "10"}, {"rate", "4"}, {"size", "8"}, {"initial_memory", "zeros"}});
  const ModelShape shape{1, kWidth, kHeads, kDim, kBlock};
  Random random(3, "compressive");
  const auto method = settings->make(shape, 0, random);
  constexpr int64_t kLast = 21;
  const Tensor hidden = random_normal({kLast, kWidth}, random);
  const Tensor all = lapse::cat({at::zeros({10, kWidth}, at::kDouble), hidden});  // from time -10 on
  Tensor kind = at::full({10 + kLast}, static_cast<int64_t>(RowKind::token), at::kByte);
  kind.narrow(0, 0, 10).fill_(static_cast<int64_t>(RowKind::start));
  kind[10] = static_cast<int64_t>(RowKind::first);
  MemoryTable table(1);
  table.append(
      {{"hidden", all.unsqueeze(0)}, {"time", at::arange(-10, kLast).unsqueeze(0)}, {"kind", kind.unsqueeze(0)}});
  const auto pooled = method->pool(table, at::zeros({1}, at::kLong), kLast);
  ASSERT_TRUE(pooled.hidden.defined());
  for (int64_t i = 0; i < pooled.time.numel(); ++i) {
    const auto tau = pooled.time[i].item<int64_t>();
    EXPECT_LE(difference(pooled.hidden[i], all.narrow(0, tau + 10, 4).mean(0)), 1e-12) << tau;
  }
  std::vector<int64_t> times(pooled.time.const_data_ptr<int64_t>(),
                             pooled.time.const_data_ptr<int64_t>() + pooled.time.numel());
  EXPECT_EQ(times, (std::vector<int64_t>{-10, -6, -2, 2, 6, 10}));
  EXPECT_EQ(method->initial_slots(), (std::vector<int64_t>{-18, -14}));
}

// Weights that stay are scaled up: over many draws the newest timesteps and the averages both come to what they are
// without dropout.
TEST(Compressive, IsTheSameOnAverageWithDropout) {
  const ModelShape shape{1, kWidth, kHeads, kDim, kBlock};
  Random random(4, "compressive");
  const auto method = options()->make(shape, 0, random);
  const int64_t T = kSpan + kSlots * kRate;
  const Tensor start = at::full({1}, T - 1, at::kLong);
  MemoryTable table(1);
  append_at(table, at::zeros({1}, at::kLong), {{"hidden", random_normal({1, T, kWidth}, random)}});
  const auto pooled = method->pool(table, at::zeros({1}, at::kLong), T);  // of all queries up to the last
  ASSERT_TRUE(pooled.hidden.defined());
  insert(table, pooled);
  const Tensor key = random_normal({table.rows(), kHeads, kDim}, random) * 0.3;
  Rows rows{table, key, at::ones_like(key), {}, {}, Stored::inputs};  // values of 1: what is read sums the weights
  rows.until = method->until(rows.view());
  Query query{{}, random_normal({1, 1, kHeads, kDim}, random), start, {}};
  EXPECT_NEAR(method->read(query, rows).out.mean().item<double>(), 1, 1e-12);
  query.dropout = 0.4;
  Tensor sum = at::zeros({kHeads, kDim}, at::kDouble);
  constexpr int64_t kDraws = 1000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    query.seed = seed;
    sum += method->read(query, rows).out[0][0];
  }
  // Some 15 weights of 1 / 15 each: one draw's sum has a standard deviation of sqrt(0.4 / 0.6 / 15) = 0.21.
  EXPECT_LE((sum / kDraws - 1).abs().max().item<double>(), 5 * 0.21 / std::sqrt(1. * kDraws));
}

TEST(Compressive, RefusesWhatDoesNotFit) {
  const auto message = [](const Settings& settings) {
    const ModelShape shape{1, 8, 2, 4, 8};
    try {
      const auto options = method_options("compressive", settings);
      options->check(shape), options->check_new(shape);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message({{"size", "10"}, {"rate", "4"}}).find("not a multiple"), std::string::npos);
  EXPECT_NE(message({{"max_span", "7"}}).find("must hold a block"), std::string::npos);
  EXPECT_NE(message({{"max_span", "9"}, {"rate", "12"}, {"size", "12"}}).find("must hold"), std::string::npos);
  EXPECT_EQ(message({{"max_span", "8"}, {"rate", "4"}, {"size", "8"}}), "no error");
  // A rate that does not divide the block: an average could hold timesteps of the block, and lose their gradients.
  EXPECT_NE(message({{"max_span", "9"}, {"rate", "3"}, {"size", "6"}}).find("does not divide train.block = 8"),
            std::string::npos);
  EXPECT_NO_THROW(method_options("compressive", {{"max_span", "9"}})->check({1, 8, 2, 4, 8})) << "an earlier run";
  EXPECT_EQ(message({{"max_span", "10"}, {"rate", "3"}, {"size", "6"}}), "no error");
}

}  // namespace
}  // namespace lapse
