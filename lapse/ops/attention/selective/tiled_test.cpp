// The tiled kernels on every instruction set, at sizes of several tiles and chunks, against the reference in float64.
#include <gtest/gtest.h>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_testing.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/poison_testing.h"

namespace lapse {
namespace {

using at::Tensor;

// Not a single row: its weight is 1, so that gradients would be rounding alone.
SelectiveCase large_case(uint64_t seed) {
  return random_selective_case(
      seed, {{1, 3}, {1, 3, 7, 64, 65, 150, 331}, {1, 2, 3, 4}, {1, 16, 17, 64, 80}, {0, 2, 63, 64, 65, 331, 500}});
}

std::vector<std::pair<std::string, Tensor>> everything(const SelectiveCase& c, const Tensor& grad_out,
                                                       const Tensor& grad_memory, bool reference,
                                                       const Tensor& out = {}) {
  const auto y =
      reference ? selective_attention_reference(c.inputs, c.options) : selective_attention(c.inputs, c.options);
  auto given = y;  // what the backward pass reads
  if (out.defined()) given.out = out.to(y.out.scalar_type());
  const auto g = reference ? selective_attention_backward_reference(grad_out, grad_memory, c.inputs, c.options, given)
                           : selective_attention_backward(grad_out, grad_memory, c.inputs, c.options, given);
  return {{"out", y.out},
          {"memory", y.memory},
          {"masking", y.masking},
          {"stats", y.stats},
          {"dq", g.q},
          {"dk", g.k},
          {"dv", g.v},
          {"dselect_q", g.select_q},
          {"dselect_k", g.select_k},
          {"dposition", g.position},
          {"dage_bias", g.age_bias}};
}

struct Incoming {
  explicit Incoming(const SelectiveCase& c) {
    Random random(1, "incoming");
    out = random_normal(c.inputs.q.sizes(), random).to(c.inputs.q.scalar_type());
    memory = random_normal({c.inputs.q.size(0), c.inputs.q.size(1)}, random).to(at::kFloat);
  }
  Tensor out, memory;
};

/// Of everything the operator returns and its gradients, the largest error in units of the largest value.
void expect_close(const SelectiveCase& fast, double tolerance, const std::string& text) {
  const Incoming incoming(fast);
  const auto got = everything(fast, incoming.out, incoming.memory, false);
  const auto expected = everything(converted(fast, at::kDouble), incoming.out.to(at::kDouble),
                                   incoming.memory.to(at::kDouble), true, got[0].second);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(error_between(got[i].second, expected[i].second), tolerance) << got[i].first << " of " << text;
}

TEST(SelectiveAttentionTiled, AgreesWithTheReferenceOnEveryInstructionSet) {
  const Poison poison;
  const auto targets = InstructionSet::all();
  ASSERT_FALSE(targets.empty());
  for (int64_t target : targets) {
    const InstructionSet scope(target);
    for (uint64_t seed = 0; seed < 30; ++seed) {
      const Threads threads(1 + static_cast<int>(seed % 2));
      const SelectiveCase c = converted(large_case(seed), at::kFloat);
      // F is a sum over hundreds of queries, without relu of both signs: its rounding is in the exponents.
      expect_close(c, 2e-5, c.text + ", target " + std::to_string(target));
    }
  }
}

TEST(SelectiveAttentionTiled, AgreesInBfloat16) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const SelectiveCase c = converted(large_case(seed), at::kBFloat16);
    // Weights, their gradients and outputs are rounded to 2^-9, then summed over queries or rows, whose signs differ;
    // through F once more, over up to 330 later queries.
    expect_close(c, 0.1, c.text);
  }
}

TEST(SelectiveAttentionDecode, SumsBfloat16RowsInFloat32) {
  const Poison poison;
  for (int64_t target : InstructionSet::all())
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const InstructionSet scope(target);
      auto drawn =
          random_selective_case(seed, {{1, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 6}, {1, 16, 17, 64}, {0, 1, 65, 500}});
      drawn.options.dropout = 0;
      const SelectiveCase fast = converted(drawn, at::kBFloat16), same = converted(fast, at::kDouble);
      SCOPED_TRACE(fast.text + ", target " + std::to_string(target));
      const auto y = selective_attention(fast.inputs, fast.options);
      const auto z = selective_attention_reference(same.inputs, same.options);
      EXPECT_LE(error_between(y.out, z.out), 1. / 256);  // rounded once, at the end
      for (const auto& [a, b] : {std::pair{y.memory, z.memory}, {y.masking, z.masking}, {y.stats, z.stats}})
        EXPECT_LE(error_between(a, b), 2e-5);
    }
}

// More keys and values than are packed at a time, and few enough queries that heads are shared out.
TEST(SelectiveAttentionTiled, TakesManySamplesAndHeads) {
  for (bool form : {false, true}) {
    SelectiveCase c = converted(random_selective_case(5, {{5}, {16}, {16}, {64}, {512}}), at::kFloat);
    EXPECT_GT(2 * c.inputs.k.numel() * sizeof(float), size_t{16} << 20);
    c.options.select_q.reset(), c.options.select_k.reset();
    if (form) {
      Random random(1, "form");
      c.options.select_q = random_normal({5, 16, 24}, random).to(at::kFloat);
      c.options.select_k = random_normal({c.inputs.k.size(0), 24}, random).to(at::kFloat);
    }
    expect_close(c, 2e-5, c.text);
  }
}

TEST(SelectiveAttentionTiled, RepeatsToTheBitOnAnyNumberOfThreads) {
  for (uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
    const SelectiveCase c = converted(large_case(seed), at::kFloat);
    const Incoming incoming(c);
    std::vector<std::vector<std::pair<std::string, Tensor>>> runs;
    for (int threads : {1, 1, 2}) {
      const Threads scope(threads);
      runs.push_back(everything(c, incoming.out, incoming.memory, false));
    }
    for (size_t i = 0; i < runs[0].size(); ++i)
      for (size_t run : {1, 2})
        EXPECT_TRUE(runs[run][i].second.nan_to_num(0).equal(runs[0][i].second.nan_to_num(0)))
            << runs[0][i].first << " of " << c.text;
  }
}

AttentionInputs stream(int64_t K, int64_t n, int64_t H, Random& random) {
  return {random_normal({1, K, H, 16}, random).to(at::kFloat),
          random_normal({n, H, 16}, random).to(at::kFloat),
          random_normal({n, H, 16}, random).to(at::kFloat),
          at::arange(2, at::kLong) * n,
          at::full({1}, n - K, at::kLong),
          at::arange(n, at::kLong)};
}

// A run that has diverged must not look finite, whatever kernel takes the call.
TEST(SelectiveAttentionTiled, KeepsNaN) {
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int64_t K : {1, 70})
      for (int64_t head : {0, 1}) {
        Random random(8, "NaN");
        AttentionInputs x = stream(K, 100, 2, random);
        x.k[20][head][3] = NAN;
        EXPECT_TRUE(selective_attention(x, {}).out.select(2, head).isnan().all().item<bool>()) << K << ", " << head;
        x = stream(K, 100, 2, random);
        SelectiveOptions o;
        o.masking = at::zeros({100});
        (*o.masking)[20] = NAN;
        EXPECT_TRUE(selective_attention(x, o).out.isnan().all().item<bool>()) << K;
      }
  }
}

// Rows that were pruned before the block cost nothing and change nothing.
TEST(SelectiveAttentionTiled, PrunedRowsChangeNothing) {
  Random random(6, "pruned");
  const int64_t K = 70, n = 500;
  AttentionInputs all = stream(K, n, 2, random);
  SelectiveOptions o, less;
  o.masking = random_normal({n}, random).abs().to(at::kFloat);
  const Tensor until = at::full({n}, int64_t{1} << 60, at::kLong);
  for (int64_t i = 0; i < n - K; ++i)
    if (random.below(2)) until[i] = n - K - static_cast<int64_t>(random.below(3));
  const Tensor kept = (until > n).nonzero().squeeze(1);
  AttentionInputs left = all;
  all.until = until;
  for (Tensor* x : {&left.k, &left.v, &left.time}) *x = x->index_select(0, kept);
  left.offsets = at::tensor({int64_t{0}, kept.numel()}, at::kLong);
  less.masking = o.masking->index_select(0, kept);
  const auto y = selective_attention(all, o), z = selective_attention(left, less);
  EXPECT_TRUE(y.out.equal(z.out) && y.memory.equal(z.memory));
  EXPECT_TRUE(y.masking.index_select(0, kept).equal(z.masking));
  const Tensor grad = at::ones_like(y.out), memory = at::ones_like(y.memory);
  const auto g = selective_attention_backward(grad, memory, all, o, y);
  const auto f = selective_attention_backward(grad, memory, left, less, z);
  EXPECT_LE(error_between(g.q, f.q), 1e-6);  // which rows are summed together differs
  EXPECT_TRUE(g.k.index_select(0, kept).equal(f.k) && g.v.index_select(0, kept).equal(f.v));
  const Tensor pruned = (until < n).nonzero().squeeze(1);
  ASSERT_GT(pruned.numel(), 100);
  for (const Tensor& x : {g.k, g.v}) EXPECT_EQ(x.index_select(0, pruned).count_nonzero().item<int64_t>(), 0);
  EXPECT_TRUE(y.masking.index_select(0, pruned).equal(o.masking->index_select(0, pruned)));
}

}  // namespace
}  // namespace lapse
