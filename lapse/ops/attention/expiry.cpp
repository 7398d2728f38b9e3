#include "lapse/ops/attention/expiry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/until.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {
namespace {

/// The time after the greatest age at which the row is seen.
template <class T>
int64_t until_of(int64_t time, T span, T ramp) {
  constexpr int64_t never = std::numeric_limits<int64_t>::max(), always = std::numeric_limits<int64_t>::min();
  if (std::isnan(span)) return always;
  const double estimate = std::ceil(static_cast<double>(span) + ramp) - 1;
  auto age = static_cast<int64_t>(std::clamp(estimate, -static_cast<double>(kFar), static_cast<double>(kFar)));
  auto readable = [&](int64_t a) { return ramp_sees(span, a, ramp); };
  while (age < kFar && readable(age + 1)) ++age;
  while (age > -kFar && !readable(age)) --age;
  if (age == kFar) return never;
  return readable(age) ? time + age + 1 : always;
}

template <class T>
at::Tensor until_of(const at::Tensor& time, const at::Tensor& span, double ramp) {
  const at::Tensor until = empty_rows(time.sizes(), at::kLong);
  const auto* times = time.const_data_ptr<int64_t>();
  const T* spans = span.const_data_ptr<T>();
  auto* to = until.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < time.numel(); ++i) to[i] = until_of(times[i], spans[i], static_cast<T>(ramp));
  return until;
}

}  // namespace

int64_t ramp_until(int64_t time, float span, float ramp) { return until_of(time, span, ramp); }
int64_t ramp_until(int64_t time, double span, double ramp) { return until_of(time, span, ramp); }

at::Tensor ramp_until(const at::Tensor& time, const at::Tensor& span, double ramp) {
  if (!time.device().is_cpu()) return ramp_until_there(time, span, ramp);
  check_ramp_until(time, span, ramp);
  const bool narrow = span.scalar_type() != at::kFloat && span.scalar_type() != at::kDouble;
  const at::Tensor spans = narrow ? span.to(at::kFloat) : span;
  const at::Tensor times = time.contiguous();
  if (spans.scalar_type() == at::kDouble) return until_of<double>(times, spans.contiguous(), ramp);
  return until_of<float>(times, spans.contiguous(), ramp);
}

}  // namespace lapse
