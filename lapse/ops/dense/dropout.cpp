#include "lapse/ops/dense/dropout.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace lapse {

// Drawn on the CPU: devices have generators of their own, which give other numbers.
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed) {
  const at::Tensor factors = at::empty_like(x, x.options().device(at::kCPU).requires_grad(false));
  factors.bernoulli_(1 - p, at::detail::createCPUGenerator(seed)).div_(1 - p);
  return x * factors.to(x.device());
}

}  // namespace lapse
