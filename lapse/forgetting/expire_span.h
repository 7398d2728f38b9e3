// Expire-Span: every memory predicts, when it is made, how long it will be kept (Sukhbaatar et al. 2021;
// docs/equations.md, "The layer").
#pragma once

#include <memory>

#include "lapse/forgetting/method.h"

namespace lapse {

std::unique_ptr<MethodOptions> expire_span_options();

}  // namespace lapse
