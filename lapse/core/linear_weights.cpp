#include "lapse/core/linear_weights.h"

#include <cmath>

namespace lapse {

std::vector<float> linear_weights(int64_t out, int64_t in, const std::string& initialisation, Random& random) {
  std::vector<float> weights(out * in);
  const double usual = 1 / std::sqrt(static_cast<double>(in));
  if (initialisation == "normal") {
    for (float& x : weights) x = static_cast<float>(usual * random.normal());
    return weights;
  }
  const double bound = initialisation == "glorot" ? std::sqrt(6.0 / static_cast<double>(in + out)) : usual;
  for (float& x : weights) x = static_cast<float>(bound * (2 * random.uniform() - 1));
  return weights;
}

}  // namespace lapse
