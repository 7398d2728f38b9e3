// A block of tokens as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/data/stream.h"

namespace lapse {

struct Batch {
  at::Tensor input, target;  ///< [B, K] int64; a target of kUnscored is not scored
  at::Tensor lengths;        ///< [B] int64: tokens before the padding on the right; undefined: no padding

  explicit Batch(const TokenBlock& block);
  Batch(at::Tensor input, at::Tensor target, at::Tensor lengths = {})
      : input(std::move(input)), target(std::move(target)), lengths(std::move(lengths)) {}
  /// Samples first ... first + size - 1.
  Batch part(int64_t first, int64_t size) const;
  /// The batch where a model can read it.
  Batch to(at::Device device) const;
};

}  // namespace lapse
