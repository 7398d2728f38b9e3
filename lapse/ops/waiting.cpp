#include "lapse/ops/waiting.h"

#include "lapse/ops/aten.h"
#include "lapse/ops/graph.h"

namespace lapse {

using at::Tensor;

Tensor sent(const Tensor& x, at::Device device) {
  if (x.device() == device) return x;
  const Tensor from = x.device().is_cpu() && device.is_cuda() ? x.contiguous().pin_memory() : x;
  if (x.device().is_cpu()) keep_for_replay(from);
  return from.to(device, x.scalar_type(), /*non_blocking=*/x.device().is_cpu());
}

Tensor places_of(const Tensor& mask, int64_t count) {
  return (mask.device().is_cpu() ? at::nonzero(mask) : at::nonzero_static(mask, count)).squeeze(1);
}

std::vector<Tensor> places_of_each(const Tensor& x, int64_t n) {
  std::vector<Tensor> places;
  if (x.device().is_cpu()) {
    for (int64_t i = 0; i < n; ++i) places.push_back(at::nonzero(x == i).squeeze(1));
    return places;
  }
  const Tensor counts = counts_of(x, n).to(at::kCPU);
  for (int64_t i = 0; i < n; ++i) places.push_back(places_of(x == i, counts.const_data_ptr<int64_t>()[i]));
  return places;
}

Tensor counts_of(const Tensor& x, int64_t n) {
  if (x.device().is_cpu()) {
    const Tensor counts = at::bincount(x, {}, n);
    TORCH_CHECK(counts.size(0) == n, "counts_of: a number is not among 0 ... ", n - 1);
    return counts;
  }
  return at::zeros({n}, x.options()).index_add(0, x, at::ones_like(x));
}

}  // namespace lapse
