#include "lapse/ops/attention/rows_forward.h"

#include <algorithm>
#include <cmath>

#include "lapse/ops/dense/native_bfloat16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lapse/ops/attention/rows_forward.cpp"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lapse {
namespace HWY_NAMESPACE {
namespace {

#include "lapse/ops/parallel/simd.inc"
#include "lapse/ops/parallel/simd_pairs.inc"

/// sums plus the products of two lines, lane by lane. Whole vectors only.
template <class T>
HWY_INLINE V AddProducts(V sums, const float* a, const T* b, int64_t n) {
  V odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kN <= n; i += 2 * kN) {
    sums = hn::MulAdd(hn::LoadU(d, a + i), LoadLine(b + i), sums);
    odd = hn::MulAdd(hn::LoadU(d, a + i + kN), LoadLine(b + i + kN), odd);
  }
  if (i + kN <= n) sums = hn::MulAdd(hn::LoadU(d, a + i), LoadLine(b + i), sums);
  return hn::Add(sums, odd);
}

/// q . k, or q . (k + p) if p is not null.
template <class T>
HWY_INLINE float Dot(const float* q, const T* k, const T* p, int64_t n) {
  V sums = AddProducts(hn::Zero(d), q, k, n);
  if (p != nullptr) sums = AddProducts(sums, q, p, n);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (int64_t i = n / kN * kN; i < n; ++i) sum += q[i] * (One(k + i) + (p == nullptr ? 0 : One(p + i)));
  return sum;
}

/// sum += factor x.
template <class T>
HWY_INLINE void AddScaled(float factor, const T* x, float* sum, int64_t n) {
  const V f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) hn::StoreU(hn::MulAdd(f, LoadLine(x + i), hn::LoadU(d, sum + i)), d, sum + i);
  for (; i < n; ++i) sum[i] += factor * One(x + i);
}

/// How many rows ahead rows are prefetched: they come from memory, in pieces too short for the hardware prefetcher.
/// Values follow keys, and the next block's keys follow these values.
constexpr int64_t kAhead = 16;
template <class T>
HWY_INLINE void Prefetch(const T* row, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / sizeof(T)) hwy::Prefetch(row + i);
}

/// The key head of head h. Without shared keys no division.
template <bool kShared, class T>
HWY_INLINE int64_t KeyHead(const RowBlock<T>& b, int64_t h) {
  return kShared ? h / b.group : h;
}

/// Features of a head: kWidth where that is above 0, so that loops over them are unrolled.
template <int kWidth, class T>
HWY_INLINE int64_t Width(const RowBlock<T>& b) {
  return kWidth > 0 ? kWidth : b.width;
}

/// The embedding of row i's age; null if there is none.
template <class T>
HWY_INLINE const T* Position(const RowBlock<T>& b, int64_t i) {
  return b.age[i] >= 1 && b.age[i] <= b.positions ? b.position + (b.age[i] - 1) * b.width : nullptr;
}

/// What is read kAhead rows after the key, or the value, of row i.
template <class T>
HWY_INLINE const T* AfterKey(const RowBlock<T>& b, int64_t i) {
  return i + kAhead < b.rows ? b.k + b.at(i + kAhead) : b.v + b.at(std::min(i + kAhead - b.rows, b.rows - 1));
}
template <class T>
HWY_INLINE const T* AfterValue(const RowBlock<T>& b, int64_t i) {
  return i + kAhead < b.rows ? b.v + b.at(i + kAhead) : b.k + b.at(b.rows - 1) + (i + kAhead - b.rows + 1) * b.stride;
}

/// The sums over the lanes of each of four vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums(const V* x, float* to) {
  for (int i = 0; i < 4; ++i) to[i] = hn::GetLane(x[i]);
}
#else
template <class Tag, class X>
HWY_INLINE void StoreSumOfBlocks(Tag tag, X x, float* to) {  // of four lanes
  if constexpr (hn::MaxLanes(tag) == 4) {
    hn::StoreU(x, tag, to);
  } else {
    const hn::Half<Tag> half;
    StoreSumOfBlocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), to);
  }
}
HWY_INLINE void StoreSums(const V* x, float* to) {
  const hn::RepartitionToWide<D> dd;
  const auto pairs = [&](V a, V b) { return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  const auto ab = hn::BitCast(dd, pairs(x[0], x[1])), ce = hn::BitCast(dd, pairs(x[2], x[3]));
  const V all =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(dd, ab, ce)));
  StoreSumOfBlocks(d, all, to);
}
#endif

/// q . (k + p) of `row` for the four heads from h on: to[head][row]. The position is loaded once for all four, and the
/// lanes of all four are added up together.
template <bool kShared, int kWidth, class T>
HWY_INLINE void ProductsOfFour(const RowBlock<T>& b, int64_t row, int64_t h, const T* p, float* to) {
  const int64_t width = Width<kWidth>(b);
  const float* q = b.q + h * width;
  const T *k = b.k + b.at(row), *of[4];
  for (int j = 0; j < 4; ++j) of[j] = k + KeyHead<kShared>(b, h + j) * width;
  V sums[4];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (int64_t i = 0; i < width; i += kN) {
    V line[4];
    for (int j = 0; j < 4; ++j) line[j] = LoadLine(of[j] + i);
    if (p != nullptr) {
      const V position = LoadLine(p + i);
      for (int j = 0; j < 4; ++j) line[j] = hn::Add(line[j], position);
    }
    for (int j = 0; j < 4; ++j) sums[j] = hn::MulAdd(hn::LoadU(d, q + j * width + i), line[j], sums[j]);
  }
  float four[4];
  StoreSums(sums, four);
  for (int j = 0; j < 4; ++j) to[(h + j) * b.rows + row] = four[j];
}

/// q . (k + p) of every row that is seen, for all heads: to[head][row].
template <bool kShared, int kWidth, class T>
HWY_INLINE void Products(const RowBlock<T>& b, float* to) {
  const int64_t rows = b.rows, heads = b.heads(), width = Width<kWidth>(b);
  int64_t i = 0;
  // For narrow heads, of whose time sums over lanes are most, four rows at a time; wide ones are read strictly in
  // order.
  for (; (width == kN || width == 2 * kN) && i + 4 <= rows; i += 4) {
    const T *k[4], *p[4];
    for (int j = 0; j < 4; ++j) {
      k[j] = b.k + b.at(i + j), p[j] = Position(b, i + j);
      Prefetch(AfterKey(b, i + j), b.key_heads * width);
    }
    for (int64_t h = 0; h < heads; ++h) {
      V sums[4];
      for (int j = 0; j < 4; ++j) {
        sums[j] = AddProducts(hn::Zero(d), b.q + h * width, k[j] + KeyHead<kShared>(b, h) * width, width);
        if (p[j] != nullptr) sums[j] = AddProducts(sums[j], b.q + h * width, p[j], width);
      }
      StoreSums(sums, to + h * rows + i);
    }
  }
  const int64_t fours = width % kN == 0 ? heads / 4 * 4 : 0;
  for (; i < rows; ++i) {
    const T *k = b.k + b.at(i), *p = Position(b, i);
    Prefetch(AfterKey(b, i), b.key_heads * width);
    for (int64_t h = 0; h < fours; h += 4) ProductsOfFour<kShared, kWidth>(b, i, h, p, to);
    for (int64_t h = fours; h < heads; ++h)
      to[h * rows + i] = Dot(b.q + h * width, k + KeyHead<kShared>(b, h) * width, p, width);
  }
}

/// q . k + q . p, in pairs, before the sum over lanes.
HWY_INLINE V PairsOf(const uint16_t* q, const uint16_t* k, const uint16_t* p, int64_t width) {
  V sums = hn::Zero(d), of_positions = hn::Zero(d);
  for (int64_t i = 0; i < width; i += kPairs) {
    sums = AddPairs(sums, k + i, q + i);
    if (p != nullptr) of_positions = AddPairs(of_positions, p + i, q + i);
  }
  return hn::Add(sums, of_positions);
}

/// As Products, in pairs, for a width that is a multiple of kPairs.
template <bool kShared, int kWidth>
HWY_INLINE void ProductsOfPairs(const RowBlock<uint16_t>& b, float* to) {
  const int64_t rows = b.rows, heads = b.heads(), width = Width<kWidth>(b), fours = heads / 4 * 4;
  for (int64_t i = 0; i < rows; ++i) {
    const uint16_t *k = b.k + b.at(i), *p = Position(b, i);
    Prefetch(AfterKey(b, i), b.key_heads * width);
    const auto sums = [&](int64_t h) {
      return PairsOf(b.narrow_q + h * width, k + KeyHead<kShared>(b, h) * width, p, width);
    };
    for (int64_t h = 0; h < fours; h += 4) {
      const V all[] = {sums(h), sums(h + 1), sums(h + 2), sums(h + 3)};
      float four[4];
      StoreSums(all, four);
      for (int j = 0; j < 4; ++j) to[(h + j) * rows + i] = four[j];
    }
    for (int64_t h = fours; h < heads; ++h) to[h * rows + i] = hn::GetLane(hn::SumOfLanes(d, sums(h)));
  }
}

template <bool kShared, int kWidth>
HWY_INLINE void AllProducts(const RowBlock<float>& b, float* to) {
  Products<kShared, kWidth>(b, to);
}
template <bool kShared, int kWidth>
HWY_INLINE void AllProducts(const RowBlock<uint16_t>& b, float* to) {
  if (b.narrow_q != nullptr && b.width % kPairs == 0 && MultipliesPairs())
    return ProductsOfPairs<kShared, kWidth>(b, to);
  Products<kShared, kWidth>(b, to);
}

/// Products w of one head become scores, in units of log 2; returns the largest of the rows that are seen.
HWY_INLINE float Scores(const float* m, const float* logit, int64_t stride, float scale, float* w, int64_t rows) {
  constexpr float kLog2e = 1.4426950408889634f;
  scale *= kLog2e;
  if (logit != nullptr) {
    for (int64_t i = 0; i < rows; ++i) w[i] = w[i] * scale + logit[i * stride] * kLog2e;
    scale = 1;
  }
  const V least = hn::Set(d, -INFINITY);
  V largest = least;
  int64_t i = 0;
  for (; i + kN <= rows; i += kN) {
    const V s = hn::Mul(hn::LoadU(d, w + i), hn::Set(d, scale));
    hn::StoreU(s, d, w + i);
    largest = hn::Max(largest, hn::IfThenElse(hn::Ge(hn::LoadU(d, m + i), hn::Zero(d)), s, least));
  }
  float most = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < rows; ++i) {
    w[i] *= scale;
    if (m[i] >= 0) most = std::max(most, w[i]);
  }
  return most;
}

/// Scores w of one head become weights m 2^(w - base), 0 where a row is not seen; their sum without and with m.
HWY_INLINE void Weights(const float* m, float base, float* w, int64_t rows, float& sum, float& masked) {
  V sums = hn::Zero(d), masked_sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + kN <= rows; i += kN) {
    const V mask = hn::LoadU(d, m + i);
    const auto seen = hn::Ge(mask, hn::Zero(d));
    const V e = hn::IfThenElseZero(seen, Exp2(hn::Sub(hn::LoadU(d, w + i), hn::Set(d, base))));
    const V weight = hn::IfThenElseZero(seen, hn::Mul(e, mask));
    sums = hn::Add(sums, e), masked_sums = hn::Add(masked_sums, weight);
    hn::StoreU(weight, d, w + i);
  }
  sum = hn::GetLane(hn::SumOfLanes(d, sums)), masked = hn::GetLane(hn::SumOfLanes(d, masked_sums));
  for (; i < rows; ++i) {
    const float e = m[i] < 0 ? 0 : std::exp2(w[i] - base);
    w[i] = m[i] < 0 ? 0 : e * m[i];
    sum += e, masked += w[i];
  }
}

/// Every row's values, each head's by its weights, summed in kSums vectors, which are all of a row.
template <int kSums, int kWidth, class T>
HWY_INLINE void SumValues(const RowBlock<T>& b, const RowSums& sums) {
  const int64_t vectors = Width<kWidth>(b) / kN;  // of a head
  V all[kSums];
  const float* weights[kSums];
  for (int j = 0; j < kSums; ++j) all[j] = hn::Zero(d), weights[j] = sums.weights + j / vectors * b.rows;
  for (int64_t i = 0; i < b.rows; ++i) {
    if (b.weight[i] <= 0) continue;
    Prefetch(AfterValue(b, i), kSums * kN);
    const T* v = b.v + b.at(i);
    for (int j = 0; j < kSums; ++j) all[j] = hn::MulAdd(hn::Set(d, weights[j][i]), LoadLine(v + j * kN), all[j]);
  }
  for (int j = 0; j < kSums; ++j) hn::StoreU(all[j], d, sums.values + j * kN);
}

/// Every row's values, each head's by its weights. One row after the other: memory is fastest in order.
template <bool kShared, int kWidth, class T>
HWY_INLINE void AddValues(const RowBlock<T>& b, const RowSums& sums) {
  const int64_t rows = b.rows, heads = b.heads(), width = Width<kWidth>(b);
  if (!kShared && width % kN == 0) {
    if (heads * width == 4 * kN) return SumValues<4, kWidth>(b, sums);
    if (heads * width == 8 * kN) return SumValues<8, kWidth>(b, sums);
    if (heads * width == 16 * kN) return SumValues<16, kWidth>(b, sums);
  }
  std::fill_n(sums.values, heads * width, 0.f);
  for (int64_t i = 0; i < rows; ++i) {
    if (b.weight[i] <= 0) continue;
    Prefetch(AfterValue(b, i), b.key_heads * width);
    const T* v = b.v + b.at(i);
    for (int64_t h = 0; h < heads; ++h)
      AddScaled(sums.weights[h * rows + i], v + KeyHead<kShared>(b, h) * width, sums.values + h * width, width);
  }
}

template <bool kShared, int kWidth, class T>
HWY_INLINE void ForwardOfWidth(const RowBlock<T>& b, const RowSums& sums) {
  AllProducts<kShared, kWidth>(b, sums.weights);
  const int64_t heads = b.heads();
  for (int64_t h = 0; h < heads; ++h) {
    float* w = sums.weights + h * b.rows;
    sums.largest[h] = Scores(b.weight, b.logit == nullptr ? nullptr : b.logit + h, heads, b.scale, w, b.rows);
    const float base = sums.largest[h] == -INFINITY ? 0 : sums.largest[h];  // then every weight is 0
    Weights(b.weight, base, w, b.rows, sums.sum[h], sums.masked[h]);
  }
  AddValues<kShared, kWidth>(b, sums);
}

template <bool kShared, class T>
HWY_INLINE void ForwardOfGroups(const RowBlock<T>& b, const RowSums& sums) {
  if (b.width == 64) return ForwardOfWidth<kShared, 64>(b, sums);
  if (b.width == 128) return ForwardOfWidth<kShared, 128>(b, sums);
  ForwardOfWidth<kShared, 0>(b, sums);
}

template <class T>
HWY_INLINE void ForwardOf(const RowBlock<T>& b, const RowSums& sums) {
  b.group == 1 ? ForwardOfGroups<false>(b, sums) : ForwardOfGroups<true>(b, sums);
}
void Forward(const RowBlock<float>& block, const RowSums& sums) { ForwardOf(block, sums); }
void ForwardRounded(const RowBlock<uint16_t>& block, const RowSums& sums) { ForwardOf(block, sums); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lapse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapse {

HWY_EXPORT(Forward);
HWY_EXPORT(ForwardRounded);

void rows_forward(const RowBlock<float>& block, const RowSums& sums) { HWY_DYNAMIC_DISPATCH(Forward)(block, sums); }
void rows_forward(const RowBlock<uint16_t>& block, const RowSums& sums) {
  HWY_DYNAMIC_DISPATCH(ForwardRounded)(block, sums);
}

}  // namespace lapse
#endif  // HWY_ONCE
