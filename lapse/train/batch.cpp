#include "lapse/train/batch.h"

#include <ATen/ATen.h>

#include "lapse/model/likelihood.h"

namespace lapse {

static_assert(kUnscored == kNoTarget);

Batch::Batch(const TokenBlock& block)
    : input(at::tensor(block.input, at::kLong).view({block.batch, block.length})),
      target(at::tensor(block.target, at::kLong).view({block.batch, block.length})) {
  if (!block.lengths.empty()) lengths = at::tensor(block.lengths, at::kLong);
}

Batch Batch::part(int64_t first, int64_t size) const {
  return {input.narrow(0, first, size), target.narrow(0, first, size),
          lengths.defined() ? lengths.narrow(0, first, size) : lengths};
}

Batch Batch::to(at::Device device) const {
  return {input.to(device), target.to(device), lengths.defined() ? lengths.to(device) : lengths};
}

}  // namespace lapse
