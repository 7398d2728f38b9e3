// lapse::ramp_until for libtorch's dispatcher: expiry.h's rule for rows on any device. On the CPU expiry.cpp computes
// it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lapse {

constexpr int64_t kFar = int64_t{1} << 30;  ///< beyond every age

/// By whichever kernel the device has, else by the reference. Arguments as those of `ramp_until` (expiry.h).
at::Tensor ramp_until_there(const at::Tensor& time, const at::Tensor& span, double ramp);

/// By libtorch's operators, on any device; nothing waits for it.
at::Tensor ramp_until_reference(const at::Tensor& time, const at::Tensor& span, double ramp);

/// c10::Error if time is not int64, its shape is not the spans', or the ramp is none that attention takes.
void check_ramp_until(const at::Tensor& time, const at::Tensor& span, double ramp);

}  // namespace lapse
