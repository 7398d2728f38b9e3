// The operators' signatures as the dispatcher knows them, flat argument lists: once for all of their kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "lapse/ops/attention/ramp/ramp_attention.h"

#define LAPSE_RAMP_ARGUMENTS                                                                                         \
  const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const at::Tensor &offsets, const at::Tensor &start, \
      const at::Tensor &time, const std::optional<at::Tensor>&row_span, const std::optional<at::Tensor>&head_span,   \
      const std::optional<at::Tensor>&position, const std::optional<at::Tensor>&logit,                               \
      const std::optional<at::Tensor>&seed, double ramp, int64_t min_age, int64_t max_age, double dropout,           \
      const std::optional<at::Tensor>&until, const std::optional<at::Tensor>&age_bias, int64_t bias_age,             \
      std::optional<double> scale
#define LAPSE_RAMP_VALUES                                                                                            \
  q, k, v, offsets, start, time, row_span, head_span, position, logit, seed, ramp, min_age, max_age, dropout, until, \
      age_bias, bias_age, scale
#define LAPSE_RAMP_INPUTS \
  { q, k, v, offsets, start, time, until }
// `received` is no argument of the backward pass.
#define LAPSE_RAMP_OPTIONS(received) \
  { {row_span, head_span, position, logit, age_bias, seed, bias_age, scale, ramp, min_age, max_age, dropout}, received }

namespace lapse {

using RampTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using RampGradientTensors =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using RampForward = RampTensors(LAPSE_RAMP_ARGUMENTS, bool received);
using RampBackward = RampGradientTensors(const at::Tensor& grad_out, const at::Tensor& grad_ramp_sum,
                                         const at::Tensor& out, const at::Tensor& stats, LAPSE_RAMP_ARGUMENTS,
                                         const std::optional<at::Tensor>& grad_lse);

}  // namespace lapse
