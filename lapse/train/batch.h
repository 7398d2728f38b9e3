// What one update reads, as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/data/stream.h"
#include "lapse/memory/table.h"

namespace lapse {

struct Batch {
  at::Tensor input;         ///< [B, K, ...]: tokens, or what else the model's input reads
  at::Tensor target;        ///< [B, K] int64, on the CPU; kUnscored: not scored
  at::Tensor lengths = {};  ///< [B] int64, on the CPU: tokens before the padding on the right; undefined: no padding
  at::Tensor begins = {};   ///< [B, K] bool: BlockOptions::begins
  at::Tensor source = {};   ///< [B, S] int64: BlockOptions::source
  bool answers = false;     ///< TokenBlock::answers
  Columns more = {};        ///< what the objective wants besides: name -> [B, ...]

  Batch(at::Tensor input, at::Tensor target) : input(std::move(input)), target(std::move(target)) {}
  explicit Batch(const TokenBlock& block);
  /// Samples first ... first + size - 1.
  Batch part(int64_t first, int64_t size) const;
  /// The batch where a model can read it. Targets and lengths stay: BlockOptions.
  Batch to(at::Device device) const;

 private:
  template <class F>
  Batch each(const F& f) const;
};

}  // namespace lapse
