// The adaptive input (Baevski & Auli, 2019): words' vectors from bands.
#pragma once

#include <memory>

#include "lapse/model/input.h"

namespace lapse {

std::unique_ptr<Input> adaptive_input(const ModelConfig& config, int64_t vocabulary, Random& random);

}  // namespace lapse
