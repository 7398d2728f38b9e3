// The adaptive softmax (Grave et al., 2017): frequent words at once, rarer ones through the cluster that holds them.
#pragma once

#include <memory>

#include "lapse/model/input.h"
#include "lapse/model/output.h"

namespace lapse {

/// With adaptive.tied it shares the bands of the input, if that has some. Error if those are of other words than
/// `outputs`.
std::unique_ptr<Output> adaptive_softmax(const ModelConfig& config, int64_t outputs, const Input& input,
                                         Random& random);

}  // namespace lapse
