// The operators' signatures as the dispatcher knows them, flat argument lists: once for all of their kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "lapse/ops/attention/selective/selective_attention.h"

#define LAPSE_SELECTIVE_ARGUMENTS                                                                                      \
  const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const at::Tensor &offsets, const at::Tensor &start,   \
      const at::Tensor &time, const std::optional<at::Tensor>&masking, const std::optional<at::Tensor>&until,          \
      const std::optional<at::Tensor>&select_q, const std::optional<at::Tensor>&select_k,                              \
      const std::optional<at::Tensor>&position, const std::optional<at::Tensor>&seed, int64_t max_age, double dropout, \
      double cap, bool shift, bool mask_first, bool mask_self, bool relu, const std::optional<at::Tensor>&first,       \
      const std::optional<at::Tensor>&age_bias, int64_t bias_age, std::optional<double> scale
#define LAPSE_SELECTIVE_VALUES                                                                                     \
  q, k, v, offsets, start, time, masking, until, select_q, select_k, position, seed, max_age, dropout, cap, shift, \
      mask_first, mask_self, relu, first, age_bias, bias_age, scale
#define LAPSE_SELECTIVE_INPUTS \
  { q, k, v, offsets, start, time, until }
#define LAPSE_SELECTIVE_OPTIONS                                                                                  \
  {                                                                                                              \
    masking, first, select_q, select_k, position, age_bias, seed, bias_age, scale, max_age, dropout, cap, shift, \
        mask_first, mask_self, relu                                                                              \
  }

namespace lapse {

using SelectiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using SelectiveGradientTensors =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using SelectiveForward = SelectiveTensors(LAPSE_SELECTIVE_ARGUMENTS);
using SelectiveBackward = SelectiveGradientTensors(const at::Tensor& grad_out, const at::Tensor& grad_memory,
                                                   const at::Tensor& out, const at::Tensor& stats,
                                                   LAPSE_SELECTIVE_ARGUMENTS);
using SelectivePrune = at::Tensor(LAPSE_SELECTIVE_ARGUMENTS, int64_t budget);

}  // namespace lapse
