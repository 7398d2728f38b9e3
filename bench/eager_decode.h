// The eager reference of decoding: one stream, one token at a time, keys and values cached in a ring.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bench/eager_model.h"

namespace lapse::bench {

class EagerDecoder {
 public:
  EagerDecoder(const StepShape& shape, const NamedTensors& parameters);

  at::Tensor next(int64_t token);  ///< logits [V] of the token after it

  /// Fills the rings with random rows, as if M tokens had been seen.
  void fill();

 private:
  struct Cache {
    at::Tensor key, value, span;  // [M, H, D], [M]: the row of time i at i mod M
  };
  at::Tensor read(const EagerLayer& layer, Cache& cache, const at::Tensor& x) const;

  StepShape shape_;
  EagerWeights weights_;
  at::Tensor position_;  // [P + 1, D], a zero row for ages without an embedding
  std::vector<Cache> caches_;
  int64_t time_ = 0;
};

}  // namespace lapse::bench
