// The tiled kernels on every instruction set, at sizes of several tiles and chunks, against the reference in float64.
#include <gtest/gtest.h>

#include <numeric>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/attention/ramp/ramp_testing.h"
#include "lapse/ops/attention/tile.h"
#include "lapse/ops/attention/work.h"
#include "lapse/ops/parallel/instruction_set_testing.h"
#include "lapse/ops/poison_testing.h"

namespace lapse {
namespace {

using at::Tensor;

/// Ragged samples of up to 700 rows with gaps, up to 150 queries.
RampCase large_case(uint64_t seed, bool dropout) {
  Random random(seed, "tiled case");
  const int64_t B = 3, H = pick<int64_t>(random, {1, 2, 3, 4, 6}), D = pick<int64_t>(random, {1, 16, 17, 64, 80});
  const auto K = pick<int64_t>(random, {1, 7, 64, 65, 150});
  std::vector<int64_t> offsets = {0}, start, times;
  for (int64_t b = 0; b < B; ++b) {
    const auto rows = pick<int64_t>(random, {0, 1, 63, 64, 65, 331, 700});
    start.push_back(static_cast<int64_t>(random.below(1000)));
    add_times(times, rows, start.back() + K - 1, K, random);
    offsets.push_back(static_cast<int64_t>(times.size()));
  }
  const int64_t N = offsets.back();
  RampCase c;
  c.inputs = {random_normal({B, K, H, D}, random), random_normal({N, H, D}, random), random_normal({N, H, D}, random),
              at::tensor(offsets, at::kLong),      at::tensor(start, at::kLong),     at::tensor(times, at::kLong)};
  auto& o = c.options;
  o.ramp = pick(random, {1., 7., 64.});
  // Spans that float32 holds exactly, clear of the corners: both precisions then see the same rows.
  const auto spans = random.below(3);
  if (spans == 1) o.row_span = clear_spans(N, random, 600, o.ramp, 1e-3).to(at::kFloat).to(at::kDouble);
  if (spans == 2) o.head_span = clear_spans(H, random, 600, o.ramp, 1e-3).to(at::kFloat).to(at::kDouble);
  if (random.below(3) > 0) o.position = random_normal({pick<int64_t>(random, {1, 64, 65, 200, 800}), D}, random);
  if (random.below(2)) o.logit = random_normal({N, H}, random);
  o.min_age = static_cast<int64_t>(random.below(2));
  o.max_age = random.below(2) ? kNoLimit : 1 + static_cast<int64_t>(random.below(500));
  o.received = random.below(2);
  if (dropout) o.dropout = 0.25, o.seed = at::full({1}, static_cast<int64_t>(seed), at::kLong);
  draw_extras(c.inputs, o, random);
  if (random.below(4) == 0) draw_later_rows(c.inputs, o, random);
  if (random.below(3) == 0) draw_until(c.inputs, random);
  draw_strides(o.position, random);
  draw_lead(c.inputs, {&o.row_span, &o.logit}, random);
  c.text = "seed " + std::to_string(seed) + ": K " + std::to_string(K) + ", H " + std::to_string(H) + ", D " +
           std::to_string(D) + ", N " + std::to_string(N) + ", spans " + std::to_string(spans) +
           (c.inputs.until ? ", until" : "") + (o.age_bias ? ", bias" : "") + (o.scale ? ", scale" : "") +
           (o.min_age < 0 ? ", later rows" : "");
  return c;
}

RampCase converted(const RampCase& c, at::ScalarType type) {
  RampCase y = c;
  for (Tensor* x : {&y.inputs.q, &y.inputs.k, &y.inputs.v}) *x = x->to(type);
  for (auto* x : {&y.options.row_span, &y.options.head_span})
    if (*x) *x = (*x)->to(at::kFloat);
  for (auto* x : {&y.options.position, &y.options.logit, &y.options.age_bias})
    if (*x) *x = (*x)->to(type);
  return y;
}

/// Of everything the operator returns and its gradients, the largest error in units of the largest value.
double worst_error(const RampCase& fast, const RampCase& exact) {
  Random random(1, "incoming");
  const Tensor grad_out = random_normal(fast.inputs.q.sizes(), random);
  const Tensor grad_sum = random_normal({fast.inputs.q.size(0)}, random).to(at::kFloat).to(at::kDouble);
  const auto type = fast.inputs.q.scalar_type();
  const Tensor narrow = grad_out.to(type);
  const auto y = ramp_attention(fast.inputs, fast.options);
  const bool spans = exact.options.row_span || exact.options.head_span;
  const Tensor grad_lse = spans ? Tensor() : random_normal(fast.inputs.q.sizes().slice(0, 3), random);
  const auto g = ramp_attention_backward(narrow, grad_sum.to(y.ramp_sum.scalar_type()), fast.inputs, fast.options, y,
                                         spans ? grad_lse : grad_lse.to(y.stats.scalar_type()));
  const auto z = ramp_attention_reference(exact.inputs, exact.options);
  const auto f =
      ramp_attention_backward_reference(narrow.to(at::kDouble), grad_sum, exact.inputs, exact.options, z, grad_lse);
  const std::pair<Tensor, Tensor> pairs[] = {{y.out, z.out},
                                             {y.ramp_sum, z.ramp_sum},
                                             {y.received, z.received},
                                             {y.stats, z.stats},
                                             {g.q, f.q},
                                             {g.k, f.k},
                                             {g.v, f.v},
                                             {g.row_span, f.row_span},
                                             {g.logit, f.logit},
                                             {g.head_span, f.head_span},
                                             {g.position, f.position}};
  double worst = error_between(g.age_bias, f.age_bias) / 4;  // the sum over all queries and rows, which cancel
  for (const auto& [a, b] : pairs) worst = std::max(worst, error_between(a, b));
  return worst;
}

TEST(RampAttentionTiled, AgreesWithTheReferenceOnEveryInstructionSet) {
  const Poison poison;
  const auto targets = InstructionSet::all();
  ASSERT_FALSE(targets.empty());
  for (int64_t target : targets) {
    const InstructionSet scope(target);
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const Threads threads(1 + static_cast<int>(seed % 2));
      const RampCase exact = large_case(seed, seed % 4 == 0), fast = converted(exact, at::kFloat);
      // The reference reads what float32 holds.
      RampCase same = converted(fast, at::kDouble);
      for (auto* x : {&same.options.row_span, &same.options.head_span})
        if (*x) *x = (*x)->to(at::kDouble);
      EXPECT_LE(worst_error(fast, same), 1e-5) << same.text << ", target " << target;
    }
  }
}

TEST(RampAttentionTiled, AgreesInBfloat16) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const RampCase fast = converted(large_case(seed, seed % 4 == 0), at::kBFloat16);
    RampCase same = converted(fast, at::kDouble);
    for (auto* x : {&same.options.row_span, &same.options.head_span})
      if (*x) *x = (*x)->to(at::kDouble);
    // Weights and their gradients are rounded to 2^-9, then summed over queries or rows, whose signs differ.
    EXPECT_LE(worst_error(fast, same), 0.03) << same.text;
  }
}

TEST(RampAttentionDecode, SumsBfloat16RowsInFloat32) {
  const Poison poison;
  int decoded = 0;
  for (int64_t target : InstructionSet::all())
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const InstructionSet scope(target);
      const RampCase fast = converted(large_case(seed, false), at::kBFloat16);
      if (fast.inputs.q.size(1) > 4 || fast.options.head_span) continue;
      ++decoded;
      SCOPED_TRACE(fast.text + ", target " + std::to_string(target));
      RampCase same = converted(fast, at::kDouble);
      if (auto& span = same.options.row_span) span = span->to(at::kDouble);
      const auto y = ramp_attention(fast.inputs, fast.options), z = ramp_attention_reference(same.inputs, same.options);
      EXPECT_LE(error_between(y.out, z.out), 1. / 256);  // rounded once, at the end
      for (const auto& [a, b] : {std::pair{y.ramp_sum, z.ramp_sum}, {y.received, z.received}, {y.stats, z.stats}})
        EXPECT_LE(error_between(a, b), 1e-5);
    }
  EXPECT_GT(decoded, 0);
}

TEST(RampAttentionTiled, TakesStridedAndExpandedTensors) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const RampCase plain = converted(large_case(seed, false), at::kFloat);
    if (plain.inputs.k.size(0) == 0) continue;
    RampCase strided = plain;
    auto& x = strided.inputs;
    x.q = x.q.transpose(1, 2).contiguous().transpose(1, 2);
    x.k = lapse::cat({x.k, x.k}, 2).narrow(2, 0, x.k.size(2));
    x.v = x.v.select(0, one_row(x)).expand_as(x.v);
    RampCase same = plain;
    same.inputs.v = x.v.contiguous();
    for (int64_t i = 0; i < 2; ++i) {
      const auto y = ramp_attention(x, strided.options), z = ramp_attention(same.inputs, same.options);
      EXPECT_TRUE(y.out.equal(z.out)) << plain.text;
      const Tensor grad = at::ones({1}).expand_as(y.out), sum = at::ones({1}).expand_as(y.ramp_sum);
      const auto g = ramp_attention_backward(grad, sum, x, strided.options, y);
      const auto f = ramp_attention_backward(grad.contiguous(), sum.contiguous(), same.inputs, same.options, z);
      EXPECT_TRUE(g.q.equal(f.q) && g.k.equal(f.k) && g.v.equal(f.v)) << plain.text;
    }
  }
}

// A stream's rows that no query sees must cost nothing, and change nothing.
TEST(RampAttentionTiled, ExpiredRowsChangeNothing) {
  Random random(6, "expired");
  const int64_t B = 2, K = 70, H = 2, D = 16, n = 500;
  RampCase all;
  all.inputs = {random_normal({B, K, H, D}, random).to(at::kFloat),
                random_normal({B * n, H, D}, random).to(at::kFloat),
                random_normal({B * n, H, D}, random).to(at::kFloat),
                at::arange(B + 1, at::kLong) * n,
                at::full({B}, n - K, at::kLong),
                at::arange(n, at::kLong).repeat({B})};
  all.options.ramp = 8;
  Tensor span = at::full({B * n}, 1000.);
  for (int64_t i = 0; i < B * n; ++i)
    if (i % n < n - K - 10 && random.below(2)) span[i] = -8.5;
  all.options.row_span = span;
  RampCase left = all;
  const Tensor kept = (span > 0).nonzero().squeeze(1);
  for (Tensor* x : {&left.inputs.k, &left.inputs.v, &left.inputs.time}) *x = x->index_select(0, kept);
  left.options.row_span = span.index_select(0, kept);
  const auto counts = (span > 0).view({B, n}).sum(1).cumsum(0);
  left.inputs.offsets = at::constant_pad_nd(counts, {1, 0}).contiguous();
  const auto y = ramp_attention(all.inputs, all.options), z = ramp_attention(left.inputs, left.options);
  EXPECT_TRUE(y.out.equal(z.out));
  const Tensor grad = at::ones_like(y.out), sum = at::ones_like(y.ramp_sum);
  const auto g = ramp_attention_backward(grad, sum, all.inputs, all.options, y);
  const auto f = ramp_attention_backward(grad, sum, left.inputs, left.options, z);
  EXPECT_TRUE(g.q.equal(f.q));
  EXPECT_TRUE(g.k.index_select(0, kept).equal(f.k));
  const Tensor expired = (span < 0).nonzero().squeeze(1);
  ASSERT_GT(expired.numel(), 100);
  for (const Tensor& x : {g.k, g.v}) EXPECT_EQ(x.index_select(0, expired).count_nonzero().item<int64_t>(), 0);
}

/// K queries of one head before which n rows of one sample lie.
AttentionInputs one_stream(int64_t K, int64_t n, Random& random, at::ScalarType type) {
  return {random_normal({1, K, 1, 16}, random).to(type),
          random_normal({n, 1, 16}, random).to(type),
          random_normal({n, 1, 16}, random).to(type),
          at::arange(2, at::kLong) * n,
          at::full({1}, n, at::kLong),
          at::arange(n, at::kLong)};
}

// A run that has diverged must not look finite, whatever kernel takes the call.
TEST(RampAttentionTiled, KeepsNaN) {
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int64_t K : {1, 70})
      for (int64_t row : {0, 40, 99}) {
        Random random(8, "NaN");
        AttentionInputs x = one_stream(K, 100, random, at::kFloat);
        x.k[row][0][3] = NAN;
        EXPECT_TRUE(ramp_attention(x, {}).out.isnan().all().item<bool>()) << K << ", " << row;
      }
  }
}

// As when an adaptive span has diverged.
TEST(RampAttentionTiled, ShowsAHeadSpanOfNaN) {
  Random random(8, "NaN");
  for (int64_t K : {1, 8, 70})
    for (auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      RampOptions o;
      o.head_span = at::full({1}, NAN);
      o.ramp = 4;
      const AttentionInputs x = one_stream(K, 100, random, type);
      EXPECT_TRUE(ramp_attention(x, o).out.isnan().all().item<bool>()) << K << type;
      AttentionInputs some = x;  // of which only queries after the first few see anything
      some.time = x.time + (x.start.item<int64_t>() + 5);
      const Tensor out = ramp_attention(some, o).out;
      EXPECT_TRUE((out.narrow(1, 0, std::min<int64_t>(K, 5)) == 0).all().item<bool>()) << K << type;
      const int64_t seeing = std::max<int64_t>(0, K - 8);
      EXPECT_TRUE(out.narrow(1, K - seeing, seeing).isnan().all().item<bool>()) << K << type;
    }
}

TEST(RampAttentionTiled, ARowSpanOfNaNIsSeenByNobody) {
  Random random(8, "NaN");
  for (int64_t K : {1, 8, 70})
    for (const auto type : {at::kFloat, at::kDouble})
      for (const bool ends : {true, false}) {
        AttentionInputs x = one_stream(K, 100, random, type);
        RampOptions o;
        o.row_span = at::full({100}, 200.f);
        (*o.row_span)[40] = NAN;
        if (ends) x.until = at::full({100}, 1000, at::kLong);
        o.received = true;
        x.k[40].fill_(NAN), x.v[40].fill_(NAN);
        const auto y = ramp_attention(x, o);
        const auto g = ramp_attention_backward(at::ones_like(y.out), at::ones_like(y.ramp_sum), x, o, y);
        EXPECT_EQ(y.received[40].item<float>(), 0) << K << type << ends;
        EXPECT_FALSE(y.ramp_sum.isnan().any().item<bool>()) << K << type << ends;
        AttentionInputs without = x;  // the same without the row
        const Tensor others = at::cat({at::arange(40), at::arange(41, 100)});
        without.k = x.k.index_select(0, others), without.v = x.v.index_select(0, others);
        without.time = x.time.index_select(0, others), without.offsets = at::tensor({0, 99}, at::kLong);
        if (ends) without.until = x.until->index_select(0, others);
        RampOptions p = o;
        p.row_span = o.row_span->index_select(0, others);
        const auto z = ramp_attention(without, p);
        const auto f = ramp_attention_backward(at::ones_like(z.out), at::ones_like(z.ramp_sum), without, p, z);
        for (const auto& [a, b] : {std::pair{y.out, z.out}, {y.stats, z.stats}, {g.q, f.q}})
          EXPECT_LE(error_between(a, b), 1e-5) << K << type << ends;
        EXPECT_EQ(g.k[40].abs().max().item<double>() + g.v[40].abs().max().item<double>(), 0) << K << type << ends;
      }
}

// All bits set is a NaN too, which rounding to bfloat16 by an addition would make 0.
TEST(RampAttentionTiled, KeepsAnyNaNInBFloat16) {
  Random random(8, "NaN");
  for (int64_t K : {1, 8, 70}) {
    AttentionInputs x = one_stream(K, 100, random, at::kBFloat16);
    RampOptions o;
    o.logit = at::zeros({100, 1});
    o.logit->view(at::kInt)[5] = -1;
    const auto y = ramp_attention(x, o);
    EXPECT_TRUE(y.out.isnan().all().item<bool>()) << K;
    EXPECT_TRUE(y.stats.select(3, 0).isnan().all().item<bool>()) << K;
  }
}

// As a mask of -1e9 over all that a query sees: float32 holds such a log-sum-exp to some tens, and weights stay near 1.
TEST(RampAttentionTiled, WeightsStayNearOneWhereAllLogitsAreHuge) {
  Random random(8, "huge");
  for (int64_t K : {1, 8, 70}) {
    AttentionInputs x = one_stream(K, 100, random, at::kFloat);
    RampOptions o;
    o.logit = at::full({100, 1}, -1e9f);
    const auto y = ramp_attention(x, o);
    const auto g = ramp_attention_backward(at::ones_like(y.out), at::zeros_like(y.ramp_sum), x, o, y);
    EXPECT_LE(g.v.abs().max().item<double>(), 2. * static_cast<double>(K)) << K;
  }
}

// A query that sees nothing gets exactly 0, whatever the rows hold that others see.
TEST(RampAttentionTiled, SeesNothingBesideRowsThatAreNotFinite) {
  Random random(8, "inf");
  for (auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    AttentionInputs x = one_stream(8, 3, random, type);
    x.start = at::zeros({1}, at::kLong);
    x.time = at::arange(3, at::kLong) + 6;  // seen by the last query alone
    x.v.fill_(INFINITY);
    const auto out = ramp_attention(x, {}).out;
    EXPECT_EQ(out.narrow(1, 0, 7).count_nonzero().item<int64_t>(), 0) << type;
  }
}

// "-inf" as a mask: rows that get no weight, also where a whole chunk of them does.
TEST(RampAttentionTiled, TakesMinusInfinityAsALogit) {
  Random random(9, "masked");
  for (int64_t K : {1, 70}) {
    const int64_t n = 300;
    AttentionInputs x = {random_normal({1, K, 2, 16}, random).to(at::kFloat),
                         random_normal({n, 2, 16}, random).to(at::kFloat),
                         random_normal({n, 2, 16}, random).to(at::kFloat),
                         at::arange(2, at::kLong) * n,
                         at::full({1}, n, at::kLong),
                         at::arange(n, at::kLong)};
    RampOptions o;
    o.logit = at::zeros({n, 2});
    o.logit->narrow(0, 0, 260).fill_(-INFINITY);
    const auto y = ramp_attention(x, o), z = ramp_attention_reference(x, o);
    EXPECT_LE(error_between(y.out, z.out), 1e-5) << K;
  }
}

TEST(ScoreTile, SkewAndUnskewMoveEachColumnByItsNumber) {
  for (int64_t target : InstructionSet::all()) {
    const InstructionSet scope(target);
    for (int queries : {16, 32, 64}) {
      const int lines = 2 * queries + 64;
      alignas(64) static float x[(2 * 64 + 64) * 64];
      auto value = [&](int a, int t) { return static_cast<float>(a * queries + t); };
      auto fill = [&] {
        for (int i = 0; i < lines * queries; ++i) x[i] = static_cast<float>(i);
      };
      fill();
      skew(x, lines, queries);
      for (int a = 0; a < lines - queries; ++a)
        for (int t = 0; t < queries; ++t) ASSERT_EQ(x[a * queries + t], value(a + t, t));
      fill();
      unskew(x, lines, queries);
      for (int a = queries; a < lines; ++a)
        for (int t = 0; t < queries; ++t) ASSERT_EQ(x[a * queries + t], value(a - t, t));
    }
  }
}

// Beside recent rows a tile may have one that is older than every embedding, or, of an encoder, one that is far ahead.
TEST(TiledWork, MultipliesOnlyAgesThatOccur) {
  const int64_t K = kTileQueries, D = 16, P = 4096;
  for (const int64_t far : {int64_t{-100'000}, int64_t{100'000}}) {
    std::vector<int64_t> times(kTileRows - 1);
    std::iota(times.begin(), times.end(), 0);
    times.insert(far < 0 ? times.begin() : times.end(), far);
    const auto N = static_cast<int64_t>(times.size());
    const AttentionInputs inputs{at::ones({1, K, 1, D}),
                                 at::ones({N, 1, D}),
                                 at::ones({N, 1, D}),
                                 at::tensor({int64_t{0}, N}, at::kLong),
                                 at::tensor({N - 1}, at::kLong),
                                 at::tensor(times, at::kLong)};
    CoreOptions options;
    options.position = at::ones({P, D});
    options.min_age = -kNoLimit;
    const TiledCall<float> call(inputs, options);
    ASSERT_EQ(call.plan.tasks.size(), 1U);
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    TiledWork<float> work(call, call.plan.tasks[0], scratch);
    work.begin_queries(0);
    EXPECT_EQ(work.first_age_block(), 0);
    EXPECT_EQ(work.lines(), 2 * kTileRows + 2 * K) << "ages 1 to 126 are two blocks of 64, between margins";
  }
}

}  // namespace
}  // namespace lapse
