#include "lapse/ops/attention/ramp/until.h"

#include <torch/library.h>

#include <cfloat>
#include <limits>

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

void check_ramp_until(const Tensor& time, const Tensor& span, double ramp) {
  const auto narrow = static_cast<float>(ramp);  // as the kernels have it
  TORCH_CHECK(narrow >= FLT_MIN && narrow <= FLT_MAX, "ramp_until: ramp must be positive and finite in float32, got ",
              ramp);
  TORCH_CHECK(time.scalar_type() == at::kLong && time.sizes() == span.sizes(),
              "ramp_until: time must be int64 of span's shape ", span.sizes(), ", got ", time.scalar_type(), " ",
              time.sizes());
}

// Around the estimate the greatest age at which the row is seen is counted out, in steps of 32 and then of 1; numbers
// near 2^30 are 64 apart in float32.
Tensor ramp_until_reference(const Tensor& time, const Tensor& span_of_any, double ramp) {
  check_ramp_until(time, span_of_any, ramp);
  constexpr int64_t kStep = 32, kSteps = 9;
  const bool wide = span_of_any.scalar_type() == at::kDouble;
  const Tensor span = span_of_any.detach().to(wide ? at::kDouble : at::kFloat);
  const auto R = wide ? ramp : static_cast<double>(static_cast<float>(ramp));
  const Tensor estimate = (span.to(at::kDouble) + R).ceil() - 1;
  const Tensor number = estimate.eq(estimate);
  const Tensor age = at::where(number, estimate, 0).clamp(-kFar, kFar).to(at::kLong);
  const auto seen_from = [&](const Tensor& from, int64_t step, int64_t count) {
    const Tensor ages = from.unsqueeze(-1) + at::arange(0, step * count, step, from.options());
    return ((span.unsqueeze(-1) - ages.to(span.scalar_type())) > -R).sum(-1);
  };
  const Tensor base = age - kStep * (kSteps - 1) / 2, steps = seen_from(base, kStep, kSteps);
  const Tensor first = base + (steps - 1) * kStep, last = first + seen_from(first, 1, kStep) - 1;
  constexpr int64_t never = std::numeric_limits<int64_t>::max(), always = std::numeric_limits<int64_t>::min();
  const Tensor some = at::logical_and(at::logical_and(number, steps > 0), last >= -kFar);
  const Tensor until = at::where(at::logical_and(some, last >= kFar), never, at::where(some, time + last + 1, always));
  return until.contiguous();  // as the kernels' is, whatever the inputs' strides are
}

Tensor ramp_until_there(const Tensor& time, const Tensor& span, double ramp) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lapse::ramp_until", "").typed<decltype(ramp_until_reference)>();
  return op.call(time, span.detach(), ramp);
}

TORCH_LIBRARY_FRAGMENT(lapse, m) { m.def("ramp_until(Tensor time, Tensor span, float ramp) -> Tensor"); }
TORCH_LIBRARY_IMPL(lapse, CompositeExplicitAutograd, m) { m.impl("ramp_until", ramp_until_reference); }

}  // namespace lapse
