#include "lapse/ops/attention/selective/tile.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lapse/ops/attention/selective/tile.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lapse {
namespace HWY_NAMESPACE {
namespace {

#include "lapse/ops/parallel/simd.inc"

/// Lane i becomes lane i - by, or `fill` where there is none.
struct Shift {
  decltype(hn::SetTableIndices(d, static_cast<const int32_t*>(nullptr))) from;
  hn::Mask<D> inside;

  HWY_INLINE explicit Shift(int by) : from(Lanes(by)), inside(Inside(by)) {}
  HWY_INLINE V operator()(V x, V fill) const { return hn::IfThenElse(inside, hn::TableLookupLanes(x, from), fill); }

  static HWY_INLINE decltype(from) Lanes(int by) {
    alignas(64) int32_t lane[kN];
    for (int i = 0; i < kN; ++i) lane[i] = HWY_MIN(HWY_MAX(i - by, 0), kN - 1);
    return hn::SetTableIndices(d, lane);
  }
  static HWY_INLINE hn::Mask<D> Inside(int by) {
    alignas(64) float inside[kN];
    for (int i = 0; i < kN; ++i) inside[i] = i - by >= 0 && i - by < kN ? 1.f : 0.f;
    return hn::Gt(hn::Load(d, inside), hn::Zero(d));
  }
};

/// Sums along the lanes, from the first on (sign 1) or from the last on (-1).
struct Scan {
  Shift one, two, four, eight, end;

  HWY_INLINE explicit Scan(int sign) : one(sign), two(2 * sign), four(4 * sign), eight(8 * sign), end(-sign * kN) {}
  /// Of each lane and those before it, and of `before`.
  HWY_INLINE V operator()(V x, V before) const {
    const V zero = hn::Zero(d);
    if (kN > 1) x = hn::Add(x, one(x, zero));
    if (kN > 2) x = hn::Add(x, two(x, zero));
    if (kN > 4) x = hn::Add(x, four(x, zero));
    if (kN > 8) x = hn::Add(x, eight(x, zero));
    return hn::Add(x, before);
  }
  /// The lane that comes last, in all.
  HWY_INLINE V All(V sums) const { return hn::TableLookupLanes(sums, end.from); }
};

HWY_INLINE V Score(const ScoreTile& tile, const float* score, int i, int t) {
  V s = hn::Load(d, score + i * tile.queries + t);
  if (tile.by_age != nullptr && tile.age_at[i] >= 0)
    s = hn::Add(s, hn::Load(d, tile.by_age + int64_t{tile.age_at[i]} * tile.queries + t));
  if (tile.bias != nullptr) s = hn::Add(s, hn::LoadU(d, tile.bias + tile.bias_at[i] + t));
  return s;
}

/// The numbers of a tile's queries, made once for all rows.
struct Queries {
  alignas(64) float number[kTileQueries];

  HWY_INLINE explicit Queries(const ScoreTile& tile) {
    for (int t = 0; t < tile.queries; ++t) number[t] = static_cast<float>(tile.first_query + t);
  }
  /// Those of the vector at column t that are among first ... last.
  HWY_INLINE hn::Mask<D> Between(int t, int32_t first, int32_t last) const {
    const V query = hn::Load(d, number + t);
    return hn::And(hn::Ge(query, hn::Set(d, static_cast<float>(first))),
                   hn::Le(query, hn::Set(d, static_cast<float>(last))));
  }
};

HWY_INLINE V Selected(const SelectiveTile& tile, const Queries& queries, const float* score, int i, int t) {
  V s = Score(tile.scores, score, i, t);
  if (tile.relu) s = hn::IfThenZeroElse(hn::Le(s, hn::Zero(d)), s);  // NaN stays NaN
  if (tile.gated) s = hn::IfThenElseZero(queries.Between(t, tile.open[i], tile.scores.last[i]), s);
  return hn::Mul(s, hn::Set(d, tile.factor));
}

void Sums(const SelectiveTile& tile, const float* score, float* sums) {
  const Queries queries(tile.scores);
  for (int i = 0; i < tile.scores.rows; ++i) {
    V sum = hn::Zero(d);
    for (int t = 0; t < tile.scores.queries; t += kN) sum = hn::Add(sum, Selected(tile, queries, score, i, t));
    sums[i] += hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

void Masking(const SelectiveTile& tile, const float* score, const float* before, float* masking, float* memory) {
  const Queries queries(tile.scores);
  const Scan scan(1);
  const V cap = hn::Set(d, tile.cap), share = hn::Set(d, -1 / tile.cap), one = hn::Set(d, 1.f);
  for (int i = 0; i < tile.scores.rows; ++i) {
    V sum = hn::Set(d, before[i]);
    for (int t = 0; t < tile.scores.queries; t += kN) {
      const V sums = scan(Selected(tile, queries, score, i, t), sum);
      const V F = tile.shift ? scan.one(sums, sum) : sums;
      sum = scan.All(sums);
      hn::Store(F, d, masking + i * tile.scores.queries + t);
      if (memory == nullptr) continue;
      V part = hn::MulAdd(hn::Min(F, cap), share, one);
      if (tile.scores.masked)
        part = hn::IfThenElseZero(queries.Between(t, tile.scores.first[i], tile.scores.last[i]), part);
      hn::Store(hn::Add(hn::Load(d, memory + t), part), d, memory + t);
    }
  }
}

void Backward(const SelectiveTile& tile, const float* score, const float* masking, const float* sum,
              const float* memory, float* later, float* grad) {
  const Queries queries(tile.scores);
  const Scan scan(-1);
  const V cap = hn::Set(d, tile.cap);
  for (int i = 0; i < tile.scores.rows; ++i) {
    V after = hn::Set(d, later[i]);
    for (int t = tile.scores.queries - kN; t >= 0; t -= kN) {
      const int at = i * tile.scores.queries + t;
      auto counts = hn::Lt(hn::Load(d, masking + at), cap);
      if (tile.scores.masked) counts = hn::And(counts, queries.Between(t, tile.scores.first[i], tile.scores.last[i]));
      const V dF = hn::Neg(hn::Add(hn::Load(d, sum + at), hn::IfThenElseZero(counts, hn::Load(d, memory + t))));
      const V sums = scan(dF, after);
      V dS = tile.shift ? scan.one(sums, after) : sums;
      after = scan.All(sums);
      if (tile.relu) dS = hn::IfThenElseZero(hn::Gt(Score(tile.scores, score, i, t), hn::Zero(d)), dS);
      if (tile.gated) dS = hn::IfThenElseZero(queries.Between(t, tile.open[i], tile.scores.last[i]), dS);
      hn::Store(hn::Add(hn::Load(d, grad + at), dS), d, grad + at);
    }
    later[i] = hn::GetLane(after);
  }
}

int64_t Largest(const float* x, const float* held, int64_t n) {
  V most = hn::Set(d, -INFINITY);
  for (int64_t i = 0; i < n; i += kN) most = hn::Max(hn::Add(hn::Load(d, x + i), hn::Load(d, held + i)), most);
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (int64_t i = 0; i < n; ++i)  // of NaN or -inf alone the first
    if (held[i] == 0 && (x[i] == largest || !(largest > -INFINITY))) return i;
  return -1;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lapse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapse {

HWY_EXPORT(Sums);
HWY_EXPORT(Masking);
HWY_EXPORT(Backward);
HWY_EXPORT(Largest);

void selective_tile_sums(const SelectiveTile& tile, const float* score, float* sums) {
  HWY_DYNAMIC_DISPATCH(Sums)(tile, score, sums);
}
void selective_tile_masking(const SelectiveTile& tile, const float* score, const float* before, float* masking,
                            float* memory) {
  HWY_DYNAMIC_DISPATCH(Masking)(tile, score, before, masking, memory);
}
void selective_tile_backward(const SelectiveTile& tile, const float* score, const float* masking, const float* sum,
                             const float* memory, float* later, float* grad) {
  HWY_DYNAMIC_DISPATCH(Backward)(tile, score, masking, sum, memory, later, grad);
}
int64_t selective_largest(const float* x, const float* held, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Largest)(x, held, n);
}

}  // namespace lapse
#endif  // HWY_ONCE
