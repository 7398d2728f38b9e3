#include "lapse/ops/ramp_decode.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lapse/ops/ramp_decode.cpp"

#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lapse {
namespace HWY_NAMESPACE {
namespace {

#include "lapse/ops/simd.inc"

template <class T>
HWY_INLINE float Dot(const float* a, const T* b, int64_t n) {
  V even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kN <= n; i += 2 * kN) {
    even = hn::MulAdd(hn::LoadU(d, a + i), LoadLine(b + i), even);
    odd = hn::MulAdd(hn::LoadU(d, a + i + kN), LoadLine(b + i + kN), odd);
  }
  for (; i + kN <= n; i += kN) even = hn::MulAdd(hn::LoadU(d, a + i), LoadLine(b + i), even);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) sum += a[i] * One(b + i);
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

template <class T>
HWY_INLINE void ForwardOf(const RampRowBlock<T>& b, const RampRowSums& sums) {
  const float scale = 1.4426950408889634f / std::sqrt(static_cast<float>(b.width));
  constexpr float kLog2e = 1.4426950408889634f;
  std::fill_n(sums.largest, b.heads, -INFINITY);
  for (int64_t i = 0; i < b.rows; ++i) {
    if (b.weight[i] < 0) continue;
    const bool aged = b.age[i] >= 1 && b.age[i] <= b.positions;
    for (int64_t h = 0; h < b.heads; ++h) {
      const float* q = b.q + h * b.width;
      float s = Dot(q, b.k + i * b.stride + h * b.width, b.width);
      if (aged) s += Dot(q, b.position + (b.age[i] - 1) * b.width, b.width);
      s *= scale;
      if (b.logit != nullptr) s += b.logit[i * b.heads + h] * kLog2e;
      sums.weights[h * b.rows + i] = s;
      if (!(s <= sums.largest[h])) sums.largest[h] = s;  // NaN too
    }
  }
  std::fill_n(sums.values, b.heads * b.width, 0.f);
  for (int64_t h = 0; h < b.heads; ++h) {
    float sum = 0, masked = 0;
    float* w = sums.weights + h * b.rows;
    const float base = sums.largest[h] == -INFINITY ? 0 : sums.largest[h];  // then every weight is 0
    for (int64_t i = 0; i < b.rows; ++i) {
      const float e = b.weight[i] < 0 ? 0 : std::exp2(w[i] - base);
      sum += e;
      w[i] = b.weight[i] < 0 ? 0 : e * b.weight[i];
      masked += w[i];
    }
    sums.sum[h] = sum, sums.masked[h] = masked;
  }
  for (int64_t i = 0; i < b.rows; ++i) {
    if (b.weight[i] <= 0) continue;
    for (int64_t h = 0; h < b.heads; ++h)
      AddScaled(sums.weights[h * b.rows + i], b.v + i * b.stride + h * b.width, sums.values + h * b.width, b.width);
  }
}
void Forward(const RampRowBlock<float>& block, const RampRowSums& sums) { ForwardOf(block, sums); }
void ForwardRounded(const RampRowBlock<uint16_t>& block, const RampRowSums& sums) { ForwardOf(block, sums); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lapse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapse {

HWY_EXPORT(Forward);
HWY_EXPORT(ForwardRounded);

void ramp_rows_forward(const RampRowBlock<float>& block, const RampRowSums& sums) {
  HWY_DYNAMIC_DISPATCH(Forward)(block, sums);
}
void ramp_rows_forward(const RampRowBlock<uint16_t>& block, const RampRowSums& sums) {
  HWY_DYNAMIC_DISPATCH(ForwardRounded)(block, sums);
}

}  // namespace lapse
#endif  // HWY_ONCE
