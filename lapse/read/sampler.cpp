#include "lapse/read/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lapse/core/error.h"

namespace lapse {

int64_t sample(const at::Tensor& given, const SamplingOptions& options, Random& random) {
  const at::Tensor logits = given.to(at::kCPU);
  if (options.temperature == 0) {
    const auto likeliest = logits.argmax().item<int64_t>();  // NaN, where there is one
    if (std::isfinite(logits[likeliest].item<double>())) return likeliest;
    fail("the model gives no finite probabilities: its weights are damaged");
  }
  const at::Tensor probabilities = at::softmax(logits.to(at::kDouble) / options.temperature, 0).contiguous();
  if (!probabilities.isfinite().all().item<bool>())
    fail("the model gives no finite probabilities: its weights are damaged, or the temperature is too low");
  const auto* p = probabilities.const_data_ptr<double>();
  std::vector<int64_t> order(probabilities.size(0));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a] > p[b]; });
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) order.resize(options.top_k);
  double whole = 0;
  for (int64_t id : order) whole += p[id];

  size_t count = 0;
  double mass = 0;
  while (count < order.size() && (count == 0 || mass < options.top_p * whole)) mass += p[order[count++]];
  double left = random.uniform() * mass;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= p[order[i]];
    if (left < 0) return order[i];
  }
  return order[count - 1];
}

}  // namespace lapse
