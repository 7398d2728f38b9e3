// Strided sparse attention: the newest rows and every n-th older one (Child et al. 2019, Sparse Transformer, the fixed
// pattern of section 4.3 with one summary row a stride, merged in every head).
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> strided_options();

}  // namespace lapse
