// One layer: attention over the memory table, perhaps attention to a source, and a feed-forward network, each added to
// what it reads.
#pragma once

#include <memory>
#include <vector>

#include "lapse/model/config.h"
#include "lapse/nn/attention.h"
#include "lapse/nn/feed_forward.h"
#include "lapse/nn/norm.h"
#include "lapse/nn/source_attention.h"

namespace lapse {

/// h + f(h), or after(h + f(h)) with post-norm; with pre-norm f norms what it reads.
struct Residual {
  std::unique_ptr<Sublayer> f;
  Norm after;
  double dropout = 0;  ///< of f(h)
  uint64_t site = 0;   ///< which of the layer's draws that is

  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) const;
};

/// h = layer(h), post-norm or pre-norm (docs/equations.md, "The base model").
class Layer {
 public:
  /// `number`: this is layer 0, 1, ... Of a model with an encoder it also attends what that made.
  Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, int64_t number,
        Random& random);
  /// One of an encoder, which attends all of what it reads.
  static Layer of_encoder(const ModelConfig& config, Random& random);

  /// h: [B, K, width]; with options.places the result is [P, width].
  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) const;

  Attention& attention() { return *attention_; }
  const Attention& attention() const { return *attention_; }
  /// Attention to what the encoder made; null: the model has none.
  const SourceAttention* source() const { return source_; }
  NamedTensors parameters();
  /// For reading only: matrices, and with them rows' keys and values, in bfloat16; all else, the sums too, stays.
  void to_bfloat16();

 private:
  Layer() = default;
  /// Appends h + f(h), which has a norm before f or after it.
  template <class F>
  F& add(const ModelConfig& config, std::unique_ptr<F> f);
  template <class F>
  void name_norm(const std::string& name, F& last);
  void add_source(const ModelConfig& config, const std::string& prefix, const std::string& norm, Random& random);
  void add_feed_forward(const ModelConfig& config, Random& random);

  std::vector<Residual> residuals_;
  Attention* attention_ = nullptr;     // one of theirs
  SourceAttention* source_ = nullptr;  // likewise
  NamedTensors parameters_;
};

}  // namespace lapse
