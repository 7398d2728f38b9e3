#include "lapse/ops/dense/dropout.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "lapse/core/random.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

constexpr int64_t kShare = 1 << 14;  // elements of a thread's share, at least

/// Element i is one half, the lower or the upper, of the 64 bits of i / 2: it does not depend on the threads.
template <class T>
void draw(T* factors, int64_t n, double p, uint64_t seed) {
  const uint64_t key = mix64(seed);
  const auto least = static_cast<uint64_t>(std::ldexp(p, 32));
  const T scale = static_cast<T>(1 / (1 - p));
  at::parallel_for(0, (n + 1) / 2, kShare / 2, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const uint64_t bits = mix64(key + static_cast<uint64_t>(pair));
      factors[2 * pair] = (bits & 0xFFFFFFFFu) >= least ? scale : 0;
      if (2 * pair + 1 < n) factors[2 * pair + 1] = (bits >> 32) >= least ? scale : 0;
    }
  });
}

}  // namespace

// Drawn on the CPU, so that every device has the same.
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed) {
  const bool wide = x.scalar_type() == at::kDouble;
  const at::Tensor factors = at::empty(x.sizes(), wide ? at::kDouble : at::kFloat);
  if (wide)
    draw(factors.mutable_data_ptr<double>(), x.numel(), p, seed);
  else
    draw(factors.mutable_data_ptr<float>(), x.numel(), p, seed);
  return x * factors.to(x.device(), x.scalar_type());
}

}  // namespace lapse
