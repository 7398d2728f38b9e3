#include "lapse/ops/attention/expiry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {
namespace {

constexpr int64_t kFar = int64_t{1} << 30;  // beyond every age

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

/// The same by operators, on any device: nothing is asked of it. Around the estimate the greatest age at which the row
/// is seen is counted out, in steps of 32 and then of 1; numbers near 2^30 are 64 apart in float32.
at::Tensor until_there(const at::Tensor& time, const at::Tensor& span, double ramp) {
  constexpr int64_t kStep = 32, kSteps = 9;
  const auto R = span.scalar_type() == at::kFloat ? static_cast<double>(static_cast<float>(ramp)) : ramp;
  const at::Tensor estimate = (span.to(at::kDouble) + R).ceil() - 1;
  const at::Tensor number = estimate.eq(estimate);
  const at::Tensor age = at::where(number, estimate, 0).clamp(-kFar, kFar).to(at::kLong);
  const auto seen_from = [&](const at::Tensor& from, int64_t step, int64_t count) {
    const at::Tensor ages = from.unsqueeze(1) + at::arange(0, step * count, step, from.options());
    return ((span.unsqueeze(1) - ages.to(span.scalar_type())) > -R).sum(1);
  };
  const at::Tensor base = age - kStep * (kSteps - 1) / 2, steps = seen_from(base, kStep, kSteps);
  const at::Tensor first = base + (steps - 1) * kStep, last = first + seen_from(first, 1, kStep) - 1;
  constexpr int64_t never = std::numeric_limits<int64_t>::max(), always = std::numeric_limits<int64_t>::min();
  const at::Tensor some = at::logical_and(at::logical_and(number, steps > 0), last >= -kFar);
  return at::where(at::logical_and(some, last >= kFar), never, at::where(some, time + last + 1, always));
}

}  // namespace

int64_t ramp_until(int64_t time, float span, float ramp) { return until_of(time, span, ramp); }
int64_t ramp_until(int64_t time, double span, double ramp) { return until_of(time, span, ramp); }

at::Tensor ramp_until(const at::Tensor& time, const at::Tensor& span, double ramp) {
  TORCH_CHECK(time.scalar_type() == at::kLong && time.sizes() == span.sizes(),
              "ramp_until: time must be int64 of span's shape ", span.sizes(), ", got ", time.scalar_type(), " ",
              time.sizes());
  const bool narrow = span.scalar_type() != at::kFloat && span.scalar_type() != at::kDouble;
  const at::Tensor spans = narrow ? span.to(at::kFloat) : span;
  if (!time.device().is_cpu()) return until_there(time.flatten(), spans.detach().flatten(), ramp).view(time.sizes());
  const at::Tensor times = time.contiguous();
  if (spans.scalar_type() == at::kDouble) return until_of<double>(times, spans.contiguous(), ramp);
  return until_of<float>(times, spans.contiguous(), ramp);
}

}  // namespace lapse
