// Choosing the next token from its logits.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/core/random.h"

namespace lapse {

struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: always the likeliest token
  int64_t top_k = 0;       ///< only the k likeliest tokens; 0: all
  double top_p = 1;        ///< only the likeliest tokens that together reach this probability (at least one)
};

/// logits: [V] float. top_k is applied before top_p; ties go to the lower id. Error for no logits, for some that are
/// not finite, and for a negative temperature or top_k, or a top_p that is not in [0, 1].
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, Random& random);

}  // namespace lapse
