// Fresh weights of a linear map, as plain numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lapse/core/random.h"

namespace lapse {

/// Of a linear map's weight [out, in], line by line: "default" U(+-1/sqrt(in)), "glorot" U(+-sqrt(6 / (in + out))),
/// "normal" N(0, 1/sqrt(in)), the second being the standard deviation.
std::vector<float> linear_weights(int64_t out, int64_t in, const std::string& initialisation, Random& random);

}  // namespace lapse
