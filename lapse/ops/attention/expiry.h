// When a row with a span has faded out.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

/// Whether m = clamp(1 + (span - age) / ramp, 0, 1) > 0: the one rule, in the span's precision.
template <class T>
bool ramp_sees(T span, int64_t age, T ramp) {
  return span - static_cast<T>(age) > -ramp;  // not where the span is NaN
}

/// The time of the first query with m = clamp(1 + (span - a) / ramp, 0, 1) = 0 for a row of this time, where a is the
/// query's time less the row's. The largest int64: never (spans beyond 2^30); the smallest: m = 0 at all times (NaN).
/// Computed in the span's precision, so that it agrees with formulas on tensors of that type to the bit.
int64_t ramp_until(int64_t time, float span, float ramp);
int64_t ramp_until(int64_t time, double span, double ramp);

/// The same of rows with times [N] int64 and spans [N], float64 or else computed in float32: [N] int64.
at::Tensor ramp_until(const at::Tensor& time, const at::Tensor& span, double ramp);

}  // namespace lapse
