#include "lapse/ops/mix64.h"

#include "lapse/ops/aten.h"

namespace lapse {

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

}  // namespace lapse
