// Strided sparse attention: the newest rows and every n-th older one, in every head (Child et al. 2019, Sparse
// Transformer, section 4.3: the sliding window of its strided pattern with the summary rows of its fixed pattern, one a
// stride. Rows that are n, 2 n, ... timesteps old, as the strided pattern reads them, could never be released).
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> strided_options();

}  // namespace lapse
