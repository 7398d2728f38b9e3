// One layer: attention over the memory table, and a feed-forward network, each added to what it reads.
#pragma once

#include <memory>
#include <vector>

#include "lapse/model/config.h"
#include "lapse/nn/attention.h"
#include "lapse/nn/norm.h"

namespace lapse {

/// h + f(h), or after(h + f(h)) with post-norm; with pre-norm f norms what it reads.
struct Residual {
  std::unique_ptr<Sublayer> f;
  Norm after;

  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) const;
};

/// h = layer(h), post-norm or pre-norm (docs/equations.md, "The base model").
class Layer {
 public:
  /// `number`: this is layer 0, 1, ...
  Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, int64_t number,
        Random& random);

  /// h: [B, K, width]; with options.places the result is [P, width].
  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) const;

  Attention& attention() { return *attention_; }
  const Attention& attention() const { return *attention_; }
  NamedTensors parameters();
  /// For reading only: matrices, and with them rows' keys and values, in bfloat16; all else, the sums too, stays.
  void to_bfloat16();

 private:
  std::vector<Residual> residuals_;
  Attention* attention_;  // one of theirs
  NamedTensors parameters_;
};

}  // namespace lapse
