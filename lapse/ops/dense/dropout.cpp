#include "lapse/ops/dense/dropout.h"

#include <ATen/Parallel.h>

#include <algorithm>
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

/// The same factors, [n] in x's type, drawn on x's device: some at a time, for their 64 bits take more room than x.
at::Tensor drawn_there(const at::Tensor& x, double p, uint64_t seed) {
  constexpr int64_t kPairs = 1 << 22;
  const int64_t pairs = (x.numel() + 1) / 2;
  const auto key = static_cast<int64_t>(mix64(seed)), least = static_cast<int64_t>(std::ldexp(p, 32));
  const at::Tensor factors = at::empty({pairs, 2}, x.options());
  for (int64_t at = 0; at < pairs; at += kPairs) {
    const int64_t some = std::min(kPairs, pairs - at);
    const at::Tensor bits = mix64(at::arange(at, at + some, x.options().dtype(at::kLong)) + key);
    for (const int half : {0, 1}) {
      const at::Tensor draw = at::bitwise_and(half == 0 ? bits : at::bitwise_right_shift(bits, 32), 0xFFFFFFFF);
      factors.narrow(0, at, some).select(1, half).copy_(draw >= least);
    }
  }
  return factors.flatten().narrow(0, 0, x.numel()).mul_(1 / (1 - p));
}

}  // namespace

// Products wrap, and a logical shift is an arithmetic one with its sign bits cleared.
at::Tensor mix64(at::Tensor x) {
  auto shifted = [](const at::Tensor& y, int n) {
    return at::bitwise_and(at::bitwise_right_shift(y, n), (int64_t{1} << (64 - n)) - 1);
  };
  x = x + static_cast<int64_t>(0x9E3779B97F4A7C15u);
  x = at::bitwise_xor(x, shifted(x, 30)) * static_cast<int64_t>(0xBF58476D1CE4E5B9u);
  x = at::bitwise_xor(x, shifted(x, 27)) * static_cast<int64_t>(0x94D049BB133111EBu);
  return at::bitwise_xor(x, shifted(x, 31));
}

// Every device has the same.
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed) {
  if (!x.device().is_cpu()) return x * drawn_there(x.detach(), p, seed).view(x.sizes());
  const bool wide = x.scalar_type() == at::kDouble;
  const at::Tensor factors = at::empty(x.sizes(), wide ? at::kDouble : at::kFloat);
  if (wide)
    draw(factors.mutable_data_ptr<double>(), x.numel(), p, seed);
  else
    draw(factors.mutable_data_ptr<float>(), x.numel(), p, seed);
  return x * factors.to(x.scalar_type());
}

}  // namespace lapse
