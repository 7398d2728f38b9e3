// The four products of attention: queries, keys, values, and what becomes of the heads' outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lapse/nn/linear.h"

namespace lapse {

struct AttentionOptions {
  double dropout = 0;  ///< on the weights
  std::string initialisation = "default";
  double divisor = 1;  ///< of the initial W_o
};

/// W_q, W_k, W_v [H D, width] and W_o [width, H D]. Where logits are not divided by sqrt(D), the initial W_q is.
class Projections {
 public:
  Projections(const ModelShape& shape, const AttentionOptions& options, Random& random);

  /// [..., H D] as [..., H, D].
  at::Tensor heads(const at::Tensor& x) const;
  /// Whether the matrices are in bfloat16; keys and values are then too.
  bool bfloat16() const { return key.weight.scalar_type() == at::kBFloat16; }

  /// PREFIXquery and so on.
  void name(const std::string& prefix, NamedTensors& parameters);
  std::vector<at::Tensor*> matrices() { return {&query.weight, &key.weight, &value.weight, &out.weight}; }

 private:
  int64_t heads_, head_dim_;

 public:
  Linear query, key, value, out;
};

}  // namespace lapse
