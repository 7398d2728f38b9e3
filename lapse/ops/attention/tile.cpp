#include "lapse/ops/attention/tile.h"

#include <algorithm>

#include "lapse/core/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lapse/ops/attention/tile.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lapse {
namespace HWY_NAMESPACE {
namespace {

#include "lapse/ops/parallel/simd.inc"

constexpr float kHidden = -1e30f;  // the score of what a query does not see

/// The queries of one vector, made once for all rows: Iota goes through memory.
struct Queries {
  hn::Vec<hn::RebindToSigned<D>> number;
  V query, one_by_ramp;

  HWY_INLINE Queries(const ScoreTile& tile, int t)
      : number(hn::Iota(di, tile.first_query + t)),
        query(hn::ConvertTo(d, number)),
        one_by_ramp(hn::Set(d, 1 / tile.ramp)) {}
};

/// Row i against the queries of one vector.
struct Cell {
  hn::Mask<D> visible;
  V remaining;  // r = span - a
  V m;

  HWY_INLINE Cell(const ScoreTile& tile, const Queries& queries, int i) {
    visible = hn::And(hn::Ge(queries.query, hn::Set(d, static_cast<float>(tile.first[i]))),
                      hn::Le(queries.query, hn::Set(d, static_cast<float>(tile.last[i]))));
    if (tile.span == nullptr) {
      remaining = hn::Zero(d);
      m = hn::Set(d, 1.f);
      return;
    }
    const V age = hn::ConvertTo(d, hn::Add(queries.number, hn::Set(di, tile.age[i])));
    remaining = hn::Sub(hn::Set(d, tile.span[i]), age);
    const V one = hn::Set(d, 1.f);
    m = hn::Min(hn::Max(hn::MulAdd(remaining, queries.one_by_ramp, one), hn::Zero(d)), one);
  }

  HWY_INLINE hn::Mask<D> on_ramp(const ScoreTile& tile) const {
    return hn::And(visible, hn::And(hn::Lt(remaining, hn::Zero(d)), hn::Gt(remaining, hn::Set(d, -tile.ramp))));
  }
};

/// q . k with what is added to it.
HWY_INLINE V Score(const ScoreTile& tile, const float* score, int i, int t) {
  V s = hn::Load(d, score + i * tile.queries + t);
  if (tile.by_age != nullptr && tile.age_at[i] >= 0)
    s = hn::Add(s, hn::Load(d, tile.by_age + int64_t{tile.age_at[i]} * tile.queries + t));
  if (tile.logit != nullptr) s = hn::Add(s, hn::Set(d, tile.logit[i]));
  if (tile.bias != nullptr) s = hn::Add(s, hn::LoadU(d, tile.bias + tile.bias_at[i] + t));
  if (tile.masking != nullptr) s = hn::Sub(s, hn::Load(d, tile.masking + i * tile.queries + t));
  return s;
}

/// p = a / (Z + 1e-8) from the saved statistic. It is below 2^27, and at most 1 without spans; where scores are so
/// large that the statistic's rounding says otherwise, it must stay near that.
HWY_INLINE V Weight(const ScoreTile& tile, V score, V lse2) {
  const V exponent = hn::MulSub(score, hn::Set(d, tile.scale), lse2),
          most = hn::Set(d, tile.span == nullptr ? 1.f : 27.f);
  return Exp2(hn::IfThenElse(hn::Gt(exponent, most), most, exponent));
}

/// Completes the scores of one vector of queries; their largest.
HWY_INLINE V Complete(const ScoreTile& tile, float* score, int t, V largest) {
  const Queries queries(tile, t);
  const bool plain = !tile.masked && tile.by_age == nullptr && tile.logit == nullptr && tile.bias == nullptr &&
                     tile.masking == nullptr;
  V odd = largest;  // two maxima: one would wait for itself
  const auto complete = [&](int i, V& most) HWY_ATTR {
    V s = Score(tile, score, i, t);
    if (tile.masked) s = hn::IfThenElse(Cell(tile, queries, i).visible, s, hn::Set(d, kHidden));
    if (!plain) hn::Store(s, d, score + i * tile.queries + t);
    most = hn::Max(s, most);  // in this order: x86 then passes over NaN, which comes back as a weight
  };
  for (int i = 0; i < tile.rows; i += 2) complete(i, largest), complete(i + 1, odd);
  return hn::Max(odd, largest);
}

template <bool kMasked>
HWY_INLINE void Weights(const ScoreTile& tile, float* score, int t, RunningSoftmax& running, V* ramp_sum) {
  const Queries queries(tile, t);
  const V scale = hn::Set(d, tile.scale), largest = hn::Load(d, running.largest + t);
  V sum = hn::Load(d, running.sum + t), masked = hn::Load(d, running.masked + t);
  for (int i = 0; i < tile.rows; ++i) {
    float* cell = score + i * tile.queries + t;
    V w = Exp2(hn::Mul(hn::Sub(hn::Load(d, cell), largest), scale));  // at most 0 however large scores are
    sum = hn::Add(sum, w);
    if (kMasked && tile.span != nullptr) {
      const Cell c(tile, queries, i);
      w = hn::Mul(w, c.m);
      *ramp_sum = hn::Add(*ramp_sum, hn::IfThenElseZero(c.on_ramp(tile), c.remaining));
    }
    masked = hn::Add(masked, w);
    if (tile.dropout != nullptr) w = hn::Mul(w, hn::Load(d, tile.dropout + i * tile.queries + t));
    hn::Store(w, d, cell);
  }
  hn::Store(sum, d, running.sum + t);
  hn::Store(masked, d, running.masked + t);
}

// The passes copy the tile: what they store could otherwise change it, so that each row would read it again.
void Forward(const ScoreTile& given, float* score, RunningSoftmax& running, float* rescale, double* ramp_sum) {
  const ScoreTile tile = given;
  V on_ramp = hn::Zero(d);
  for (int t = 0; t < tile.queries; t += kN) {
    const V before = hn::Load(d, running.largest + t);
    const V largest = Complete(tile, score, t, before);
    const V factor = Exp2(hn::Mul(hn::Sub(before, largest), hn::Set(d, tile.scale)));
    hn::Store(factor, d, rescale + t);
    hn::Store(largest, d, running.largest + t);
    hn::Store(hn::Mul(hn::Load(d, running.sum + t), factor), d, running.sum + t);
    hn::Store(hn::Mul(hn::Load(d, running.masked + t), factor), d, running.masked + t);
    if (tile.masked)
      Weights<true>(tile, score, t, running, &on_ramp);
    else
      Weights<false>(tile, score, t, running, &on_ramp);
  }
  if (ramp_sum != nullptr) *ramp_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, on_ramp)));
}

// With p = a / (Z + 1e-8) and b = da' - c, a' = m p, the gradient of the span is p b / R on the ramp and that of the
// logit p (m b - c 1e-8); where m = 1 the last term is below float32's precision (docs/equations.md).
template <bool kMasked>
HWY_INLINE void Gradients(const ScoreTile& tile, const float* lse2, const float* dot, float* score, float* grad,
                          const TileGradients& sums) {
  for (int t = 0; t < tile.queries; t += kN) {
    const Queries queries(tile, t);
    const V lse = hn::Load(d, lse2 + t), c = hn::Load(d, dot + t);
    for (int i = 0; i < tile.rows; ++i) {
      const int at = i * tile.queries + t;
      V p = Weight(tile, Score(tile, score, i, t), lse);
      V b = hn::Load(d, grad + at), applied = p;
      if (tile.dropout != nullptr) b = hn::Mul(b, hn::Load(d, tile.dropout + at));
      b = hn::Sub(b, c);
      if (kMasked) {
        const Cell cell(tile, queries, i);
        p = hn::IfThenElseZero(cell.visible, p);
        applied = hn::Mul(p, cell.m);
        if (tile.span != nullptr) {
          const auto on_ramp = cell.on_ramp(tile);
          if (!hn::AllFalse(d, on_ramp)) {
            const V one = hn::IfThenElseZero(on_ramp, hn::Set(d, 1.f));
            sums.span[i] += hn::GetLane(hn::SumOfLanes(d, hn::IfThenElseZero(on_ramp, hn::Mul(p, b))));
            sums.on_ramp[i] += hn::GetLane(hn::SumOfLanes(d, one));
          }
          b = hn::NegMulAdd(c, hn::Set(d, 1e-8f), hn::Mul(cell.m, b));
        }
      }
      const V ds = hn::Mul(p, b);
      if (tile.dropout != nullptr) applied = hn::Mul(applied, hn::Load(d, tile.dropout + at));
      hn::Store(ds, d, grad + at);
      hn::Store(applied, d, score + at);
      if (sums.masking != nullptr) hn::Store(hn::Add(hn::Load(d, sums.masking + at), ds), d, sums.masking + at);
      if (sums.by_age != nullptr && tile.age_at[i] >= 0)
        hn::Store(ds, d, sums.by_age + int64_t{tile.age_at[i]} * tile.queries + t);
      if (sums.logit != nullptr) sums.logit[i] += hn::GetLane(hn::SumOfLanes(d, ds));
    }
  }
}

void Backward(const ScoreTile& given, const float* lse2, const float* dot, float* score, float* grad,
              const TileGradients& results) {
  const ScoreTile tile = given;
  const TileGradients sums = results;
  if (tile.masked)
    Gradients<true>(tile, lse2, dot, score, grad, sums);
  else
    Gradients<false>(tile, lse2, dot, score, grad, sums);
}

void Received(const ScoreTile& tile, const float* lse2, float* score, float* received) {
  for (int t = 0; t < tile.queries; t += kN) {
    const Queries queries(tile, t);
    const V lse = hn::Load(d, lse2 + t);
    for (int i = 0; i < tile.rows; ++i) {
      V p = Weight(tile, Score(tile, score, i, t), lse);
      const Cell cell(tile, queries, i);
      p = hn::IfThenElseZero(cell.visible, hn::Mul(p, cell.m));
      received[i] += hn::GetLane(hn::SumOfLanes(d, p));
    }
  }
}

/// Lanes whose number within the vector has this bit.
HWY_INLINE hn::Mask<D> LanesWith(int bit) {
  alignas(64) float has[kN];
  for (int i = 0; i < kN; ++i) has[i] = (i & bit) != 0 ? 1.f : 0.f;
  return hn::Gt(hn::Load(d, has), hn::Zero(d));
}

/// Of four lines `step` apart, lane by lane the one that two bits of the lane's number choose.
HWY_INLINE V Choose(const float* x, int64_t step, hn::Mask<D> low, hn::Mask<D> high) {
  const V even = hn::IfThenElse(low, hn::Load(d, x + step), hn::Load(d, x));
  const V odd = hn::IfThenElse(low, hn::Load(d, x + 3 * step), hn::Load(d, x + 2 * step));
  return hn::IfThenElse(high, odd, even);
}

// Column t moves by t lines: by its vector's first column and two bits of its number at once, then by two bits more.
// Each pass reads lines that it has yet to write.
void Skew(float* x, int lines, int queries) {
  for (int t = 0; t < queries; t += kN) {
    int valid = lines - t, from = t;
    if (kN == 1)
      for (int a = 0; a < valid; ++a) x[a * queries + t] = x[(a + t) * queries + t];
    for (int bit = 1; bit < kN; bit *= 4, from = 0) {
      const bool two = 2 * bit < kN;
      const auto low = LanesWith(bit), high = LanesWith(two ? 2 * bit : 1 << 30);
      valid -= two ? 3 * bit : bit;
      for (int a = 0; a < valid; ++a) {
        const float* at = x + (a + from) * queries + t;
        const V moved = two ? Choose(at, int64_t{bit} * queries, low, high)
                            : hn::IfThenElse(low, hn::Load(d, at + bit * queries), hn::Load(d, at));
        hn::Store(moved, d, x + a * queries + t);
      }
    }
  }
}

void Unskew(float* x, int lines, int queries) {
  for (int t = 0; t < queries; t += kN) {
    int first = t, from = t;
    if (kN == 1)
      for (int a = lines - 1; a >= first; --a) x[a * queries + t] = x[(a - t) * queries + t];
    for (int bit = 1; bit < kN; bit *= 4, from = 0) {
      const bool two = 2 * bit < kN;
      const auto low = LanesWith(bit), high = LanesWith(two ? 2 * bit : 1 << 30);
      first += two ? 3 * bit : bit;
      for (int a = lines - 1; a >= first; --a) {
        const float* at = x + (a - from) * queries + t;
        const V moved = two ? Choose(at, -int64_t{bit} * queries, low, high)
                            : hn::IfThenElse(low, hn::Load(d, at - bit * queries), hn::Load(d, at));
        hn::Store(moved, d, x + a * queries + t);
      }
    }
  }
}

/// A loop that the compiler makes vectors of: products of 64 bits are there for some instruction sets only.
void DrawDropout(double p, uint64_t seed, uint64_t query, int queries, const int64_t* index, int rows,
                 float* HWY_RESTRICT factors) {
  const float share = static_cast<float>(p * (1 << 24)), kept = static_cast<float>(1 / (1 - p));
  for (int i = 0; i < rows; ++i) {
    const uint64_t counter = (query << 32) + static_cast<uint64_t>(index[i]) + seed;
    float* HWY_RESTRICT line = factors + int64_t{i} * queries;
    for (int t = 0; t < queries; ++t) {
      const uint64_t bits = (mix64(counter + (static_cast<uint64_t>(t) << 32)) ^ (uint64_t{1} << 63)) >> 40;
      line[t] = static_cast<float>(static_cast<int32_t>(bits)) >= share ? kept : 0;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lapse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapse {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(Received);
HWY_EXPORT(DrawDropout);
HWY_EXPORT(Skew);
HWY_EXPORT(Unskew);

void begin_softmax(RunningSoftmax& running) {
  // So far above kHidden that what is hidden gets a weight of 0, and below every score.
  std::fill_n(running.largest, kTileQueries, -1e29f);
  std::fill_n(running.sum, kTileQueries, 0.f);
  std::fill_n(running.masked, kTileQueries, 0.f);
}
void tile_forward(const ScoreTile& tile, float* score, RunningSoftmax& running, float* rescale, double* ramp_sum) {
  HWY_DYNAMIC_DISPATCH(Forward)(tile, score, running, rescale, ramp_sum);
}
void tile_backward(const ScoreTile& tile, const float* lse2, const float* dot, float* score, float* grad,
                   const TileGradients& sums) {
  HWY_DYNAMIC_DISPATCH(Backward)(tile, lse2, dot, score, grad, sums);
}
void tile_received(const ScoreTile& tile, const float* lse2, float* score, float* received) {
  HWY_DYNAMIC_DISPATCH(Received)(tile, lse2, score, received);
}
void draw_dropout(double p, uint64_t seed, uint64_t query, int queries, const int64_t* index, int rows,
                  float* factors) {
  HWY_DYNAMIC_DISPATCH(DrawDropout)(p, seed, query, queries, index, rows, factors);
}
void skew(float* x, int lines, int queries) { HWY_DYNAMIC_DISPATCH(Skew)(x, lines, queries); }
void unskew(float* x, int lines, int queries) { HWY_DYNAMIC_DISPATCH(Unskew)(x, lines, queries); }

}  // namespace lapse
#endif  // HWY_ONCE
