#include "lapse/ops/dense/matrix_passes.h"

#include <algorithm>

#include "lapse/ops/dense/native_bfloat16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lapse/ops/dense/matrix_passes.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lapse {
namespace HWY_NAMESPACE {
namespace {

#include "lapse/ops/parallel/simd.inc"
#include "lapse/ops/parallel/simd_pairs.inc"

void ScaleColumns(float* x, const float* factor, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; j += kN)
      hn::Store(hn::Mul(hn::Load(d, x + i * columns + j), hn::Load(d, factor + j)), d, x + i * columns + j);
}

#if HWY_TARGET == HWY_SCALAR  // has no vectors of four
void Transpose(const float* from, int from_stride, float* to, int to_stride, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to[int64_t{j} * to_stride + i] = from[int64_t{i} * from_stride + j];
}
#else
/// Four lines of vectors with tag `tag`, 4 x 4 transposed within each block of four lanes.
template <class Tag>
struct FourLines {
  hn::Vec<Tag> line[4];
  HWY_INLINE FourLines(Tag tag, const float* x, int64_t stride) {
    const hn::RepartitionToWide<Tag> pairs;
    const auto r0 = hn::LoadU(tag, x), r1 = hn::LoadU(tag, x + stride), r2 = hn::LoadU(tag, x + 2 * stride),
               r3 = hn::LoadU(tag, x + 3 * stride);
    const auto lo01 = hn::BitCast(pairs, hn::InterleaveLower(tag, r0, r1)),
               hi01 = hn::BitCast(pairs, hn::InterleaveUpper(tag, r0, r1)),
               lo23 = hn::BitCast(pairs, hn::InterleaveLower(tag, r2, r3)),
               hi23 = hn::BitCast(pairs, hn::InterleaveUpper(tag, r2, r3));
    line[0] = hn::BitCast(tag, hn::InterleaveLower(pairs, lo01, lo23));
    line[1] = hn::BitCast(tag, hn::InterleaveUpper(pairs, lo01, lo23));
    line[2] = hn::BitCast(tag, hn::InterleaveLower(pairs, hi01, hi23));
    line[3] = hn::BitCast(tag, hn::InterleaveUpper(pairs, hi01, hi23));
  }
};

#if HWY_TARGET <= HWY_AVX3
constexpr int kSquare = 16;
/// 16 x 16: the blocks of 4 x 4, which are transposed, change places.
HWY_INLINE void TransposeSquare(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const FourLines<D> a(d, from, from_stride), b(d, from + 4 * from_stride, from_stride),
      c(d, from + 8 * from_stride, from_stride), e(d, from + 12 * from_stride, from_stride);
  for (int i = 0; i < 4; ++i) {
    const auto even_ab = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b.line[i]), a.line[i]),
               odd_ab = hn::OddEvenBlocks(b.line[i], hn::SwapAdjacentBlocks(a.line[i])),
               even_ce = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(e.line[i]), c.line[i]),
               odd_ce = hn::OddEvenBlocks(e.line[i], hn::SwapAdjacentBlocks(c.line[i]));
    hn::StoreU(hn::ConcatLowerLower(d, even_ce, even_ab), d, to + i * to_stride);
    hn::StoreU(hn::ConcatLowerLower(d, odd_ce, odd_ab), d, to + (4 + i) * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, even_ce, even_ab), d, to + (8 + i) * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, odd_ce, odd_ab), d, to + (12 + i) * to_stride);
  }
}
#else
constexpr int kSquare = 4;
HWY_INLINE void TransposeSquare(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const hn::FixedTag<float, 4> d4;
  const FourLines<hn::FixedTag<float, 4> > x(d4, from, from_stride);
  for (int i = 0; i < 4; ++i) hn::StoreU(x.line[i], d4, to + i * to_stride);
}
#endif

void Transpose(const float* from, int from_stride, float* to, int to_stride, int rows, int columns) {
  const hn::FixedTag<float, 4> d4;
  const int whole_rows = rows / kSquare * kSquare, whole_columns = columns / kSquare * kSquare;
  for (int i = 0; i < whole_rows; i += kSquare)
    for (int j = 0; j < whole_columns; j += kSquare)
      TransposeSquare(from + int64_t{i} * from_stride + j, from_stride, to + int64_t{j} * to_stride + i, to_stride);
  for (int i = 0; i < rows; i += 4)
    for (int j = i < whole_rows ? whole_columns : 0; j < columns; j += 4) {
      const FourLines<hn::FixedTag<float, 4> > x(d4, from + int64_t{i} * from_stride + j, from_stride);
      for (int l = 0; l < 4; ++l) hn::StoreU(x.line[l], d4, to + int64_t{j + l} * to_stride + i);
    }
}
#endif

#if HWY_TARGET <= HWY_AVX3
bool Native() { return rounds_to_bfloat16(); }
#else
bool Native() { return false; }
#endif

void ToBfloat16(const float* x, uint16_t* to, int64_t n) {
  if (Native()) return native_to_bfloat16(x, to, n);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) StoreRounded(hn::LoadU(d, x + i), to + i);
  for (; i < n; ++i) to[i] = static_cast<uint16_t>(hn::GetLane(Rounded(hn::Set(d, x[i]))) >> 16);
}

HWY_INLINE void StoreLine(const float* x, V factor, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + kN <= n; i += kN) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, to + i);
  for (; i < n; ++i) to[i] = x[i] * hn::GetLane(factor);
}
HWY_INLINE void StoreLine(const float* x, V factor, int64_t n, uint16_t* to) {
  int64_t i = 0;
  for (; i + kN <= n; i += kN) StoreRounded(hn::Mul(hn::LoadU(d, x + i), factor), to + i);
  for (; i < n; ++i) to[i] = static_cast<uint16_t>(hn::GetLane(Rounded(hn::Mul(hn::Set(d, x[i]), factor))) >> 16);
}

template <class T>
HWY_INLINE void Store(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                      const Lines<T>& lines) {
  constexpr int64_t kAhead = 8;  // lines are fetched before they are written, too short for the hardware prefetcher
  const auto line_of = [&](int64_t i) { return i >= count ? -1 : lines.index == nullptr ? i : lines.index[i]; };
  for (int64_t i = 0; i < count; ++i, x += width, factor += each) {
    if (const int64_t next = line_of(i + kAhead); next >= 0)
      for (int64_t j = 0; j < n; j += 64 / sizeof(T)) hwy::Prefetch(lines.to + next * lines.stride + j);
    const int64_t line = line_of(i);
    if (line < 0) continue;
    T* to = lines.to + line * lines.stride;
    if (*factor == 0)
      std::fill_n(to, n, T{0});
    else
      StoreLine(x, hn::Set(d, *factor), n, to);
  }
}
void StoreLines(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                const Lines<float>& lines) {
  Store(x, width, count, n, factor, each, lines);
}
void StoreLinesRounded(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                       const Lines<uint16_t>& lines) {
  Store(x, width, count, n, factor, each, lines);
}

void ToPairs(const float* x, uint16_t* to, int rows, int columns) {
  if (Native()) return native_to_pairs(x, to, rows, columns);
  auto* pairs = reinterpret_cast<uint32_t*>(to);
  for (int i = 0; i < rows; i += 2)
    for (int j = 0; j < columns; j += kN) {
      const auto even = Rounded(hn::Load(d, x + i * columns + j)),
                 odd = Rounded(hn::Load(d, x + (i + 1) * columns + j));
      const auto joined = hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(du, 0xFFFF0000u)));
      hn::StoreU(joined, du, pairs + i / 2 * columns + j);
    }
}

void JoinLines(const uint16_t* even, const uint16_t* odd, uint16_t* to, int64_t n) {
  const hn::Rebind<uint16_t, D> d16;
  auto* pairs = reinterpret_cast<uint32_t*>(to);
  for (int64_t i = 0; i < n; i += kN) {
    const auto low = hn::PromoteTo(du, hn::LoadU(d16, even + i)), high = hn::PromoteTo(du, hn::LoadU(d16, odd + i));
    hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), du, pairs + i);
  }
}

HWY_INLINE V Biased(V x, const float* bias, int64_t j, bool relu) {
  if (bias != nullptr) x = hn::Add(x, hn::LoadU(d, bias + j));
  return relu ? hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x) : x;  // NaN stays
}

void AddBias(float* x, int64_t stride, int64_t rows, int64_t columns, const float* bias, bool relu) {
  for (int64_t i = 0; i < rows; ++i, x += stride) {
    int64_t j = 0;
    for (; j + kN <= columns; j += kN) hn::StoreU(Biased(hn::LoadU(d, x + j), bias, j, relu), d, x + j);
    for (; j < columns; ++j) {
      if (bias != nullptr) x[j] += bias[j];
      if (relu && x[j] < 0) x[j] = 0;
    }
  }
}

/// The products of a line a with kM lines x, which share what they read of a.
template <int kM, class T>
HWY_INLINE void Dots(const T* a, const float* x, int64_t k, float* to, int64_t stride) {
  V sums[kM];
  for (int i = 0; i < kM; ++i) sums[i] = hn::Zero(d);
  int64_t j = 0;
  for (; j + kN <= k; j += kN) {
    const V line = LoadLine(a + j);
    for (int i = 0; i < kM; ++i) sums[i] = hn::MulAdd(line, hn::LoadU(d, x + i * k + j), sums[i]);
  }
  for (int i = 0; i < kM; ++i) {
    float sum = hn::GetLane(hn::SumOfLanes(d, sums[i]));
    for (int64_t r = j; r < k; ++r) sum += One(a + r) * x[i * k + r];
    to[i * stride] = sum;
  }
}

/// The product of one line a with one line x, read strictly in order, as memory is read fastest.
template <class T, class X>
HWY_INLINE float OneLine(const T* a, const X* x, int64_t k) {
  V s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t j = 0;
  constexpr int64_t kAhead = 8192 / sizeof(T);  // two pages: the hardware prefetcher stops at the end of a page
  for (; j + 4 * kN <= k; j += 4 * kN) {
    for (int64_t i = 0; i < 4 * kN; i += 64 / sizeof(T)) hwy::Prefetch(a + j + i + kAhead);
    s0 = hn::MulAdd(LoadLine(a + j), LoadLine(x + j), s0);
    s1 = hn::MulAdd(LoadLine(a + j + kN), LoadLine(x + j + kN), s1);
    s2 = hn::MulAdd(LoadLine(a + j + 2 * kN), LoadLine(x + j + 2 * kN), s2);
    s3 = hn::MulAdd(LoadLine(a + j + 3 * kN), LoadLine(x + j + 3 * kN), s3);
  }
  for (; j + kN <= k; j += kN) s0 = hn::MulAdd(LoadLine(a + j), LoadLine(x + j), s0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; j < k; ++j) sum += One(a + j) * One(x + j);
  return sum;
}
float DotLine(const float* a, const float* x, int64_t k) { return OneLine(a, x, k); }
float DotRounded(const uint16_t* a, const float* x, int64_t k) { return OneLine(a, x, k); }
float DotBothRounded(const uint16_t* a, const uint16_t* x, int64_t k) { return OneLine(a, x, k); }

/// The same in pairs, of lines in bfloat16.
template <int kM>
HWY_INLINE void PairDots(const uint16_t* a, const uint16_t* x, int64_t k, float* to, int64_t stride) {
  V sums[kM];
  for (int i = 0; i < kM; ++i) sums[i] = hn::Zero(d);
  int64_t j = 0;
  for (; j + kPairs <= k; j += kPairs)
    for (int i = 0; i < kM; ++i) sums[i] = AddPairs(sums[i], a + j, x + i * k + j);
  for (int i = 0; i < kM; ++i) {
    float sum = hn::GetLane(hn::SumOfLanes(d, sums[i]));
    for (int64_t r = j; r < k; ++r) sum += One(a + r) * One(x + i * k + r);
    to[i * stride] = sum;
  }
}
HWY_INLINE float OneLineInPairs(const uint16_t* a, const uint16_t* x, int64_t k) {
  V s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t j = 0;
  constexpr int64_t kAhead = 8192 / sizeof(uint16_t);  // as in OneLine
  for (; j + 4 * kPairs <= k; j += 4 * kPairs) {
    for (int64_t i = 0; i < 4 * kPairs; i += 32) hwy::Prefetch(a + j + i + kAhead);
    s0 = AddPairs(s0, a + j, x + j);
    s1 = AddPairs(s1, a + j + kPairs, x + j + kPairs);
    s2 = AddPairs(s2, a + j + 2 * kPairs, x + j + 2 * kPairs);
    s3 = AddPairs(s3, a + j + 3 * kPairs, x + j + 3 * kPairs);
  }
  for (; j + kPairs <= k; j += kPairs) s0 = AddPairs(s0, a + j, x + j);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; j < k; ++j) sum += One(a + j) * One(x + j);
  return sum;
}

/// Four lines of x at a time, then single ones, with every line of w.
template <class T, class X, class Four, class Single>
HWY_INLINE void DotsOfLines(const X* x, const T* w, int64_t m, int64_t n, int64_t k, float* to, int64_t stride,
                            const Four& four, const Single& single) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4)
    for (int64_t j = 0; j < n; ++j) four(w + j * k, x + i * k, k, to + i * stride + j, stride);
  for (; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) to[i * stride + j] = single(w + j * k, x + i * k, k);
}
void MultiplyLines(const float* x, const float* w, int64_t m, int64_t n, int64_t k, float* to, int64_t stride) {
  DotsOfLines(x, w, m, n, k, to, stride, Dots<4, float>, OneLine<float, float>);
}
bool ReadsNarrow() { return MultipliesPairs(); }
void MultiplyRounded(const float* x, const uint16_t* narrow, const uint16_t* w, int64_t m, int64_t n, int64_t k,
                     float* to, int64_t stride) {
  if (MultipliesPairs())
    DotsOfLines(narrow, w, m, n, k, to, stride, PairDots<4>, OneLineInPairs);
  else
    DotsOfLines(x, w, m, n, k, to, stride, Dots<4, uint16_t>, OneLine<uint16_t, float>);
}

void WherePositive(const float* x, const float* y, float scale, float* to, int64_t n) {
  const V s = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kN <= n; i += kN)
    hn::StoreU(hn::IfThenElseZero(hn::Gt(hn::LoadU(d, y + i), hn::Zero(d)), hn::Mul(hn::LoadU(d, x + i), s)), d,
               to + i);
  for (; i < n; ++i) to[i] = y[i] > 0 ? x[i] * scale : 0;
}

void AddTo(float* sum, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kN <= n; i += kN) hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, x + i)), d, sum + i);
  for (; i < n; ++i) sum[i] += x[i];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lapse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapse {

HWY_EXPORT(ScaleColumns);
HWY_EXPORT(Transpose);
HWY_EXPORT(ToBfloat16);
HWY_EXPORT(StoreLines);
HWY_EXPORT(StoreLinesRounded);
HWY_EXPORT(ToPairs);
HWY_EXPORT(AddBias);
HWY_EXPORT(JoinLines);
HWY_EXPORT(DotLine);
HWY_EXPORT(DotRounded);
HWY_EXPORT(DotBothRounded);
HWY_EXPORT(MultiplyLines);
HWY_EXPORT(MultiplyRounded);
HWY_EXPORT(ReadsNarrow);
HWY_EXPORT(WherePositive);
HWY_EXPORT(AddTo);

void scale_columns(float* x, const float* factor, int rows, int columns) {
  HWY_DYNAMIC_DISPATCH(ScaleColumns)(x, factor, rows, columns);
}
void transpose(const float* from, int from_stride, float* to, int to_stride, int rows, int columns) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, to, to_stride, rows, columns);
}
void to_bfloat16(const float* x, uint16_t* to, int64_t n) { HWY_DYNAMIC_DISPATCH(ToBfloat16)(x, to, n); }
void store_lines(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                 const Lines<float>& lines) {
  HWY_DYNAMIC_DISPATCH(StoreLines)(x, width, count, n, factor, each, lines);
}
void store_lines(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                 const Lines<uint16_t>& lines) {
  HWY_DYNAMIC_DISPATCH(StoreLinesRounded)(x, width, count, n, factor, each, lines);
}
void to_pairs(const float* x, uint16_t* to, int rows, int columns) {
  HWY_DYNAMIC_DISPATCH(ToPairs)(x, to, rows, columns);
}
void add_bias(float* x, int64_t stride, int64_t rows, int64_t columns, const float* bias, bool relu) {
  HWY_DYNAMIC_DISPATCH(AddBias)(x, stride, rows, columns, bias, relu);
}
void multiply_lines(const float* x, const float* w, int64_t m, int64_t n, int64_t k, float* to, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyLines)(x, w, m, n, k, to, stride);
}
void multiply_lines(const float* x, const uint16_t* narrow, const uint16_t* w, int64_t m, int64_t n, int64_t k,
                    float* to, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyRounded)(x, narrow, w, m, n, k, to, stride);
}
void join_lines(const uint16_t* even, const uint16_t* odd, uint16_t* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(JoinLines)(even, odd, to, n);
}
float dot(const float* x, const float* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(DotLine)(y, x, n); }
float dot(const float* x, const uint16_t* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(DotRounded)(y, x, n); }
float dot(const uint16_t* x, const uint16_t* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(DotBothRounded)(y, x, n); }
bool reads_narrow() { return HWY_DYNAMIC_DISPATCH(ReadsNarrow)(); }
void where_positive(const float* x, const float* y, float scale, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WherePositive)(x, y, scale, to, n);
}
void add_to(float* sum, const float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(AddTo)(sum, x, n); }

}  // namespace lapse
#endif  // HWY_ONCE
