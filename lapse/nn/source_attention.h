// Attention over all of a source, before and after the query: an encoder's over itself, a decoder's over what an
// encoder made.
#pragma once

#include <string>

#include "lapse/nn/attention.h"

namespace lapse {

/// W_o attention(W_q x, rows), x = before(h). Rows are those of pass.source; in an encoder, which has none, those of x
/// before each sample's padding, with a bias by age.
class SourceAttention : public Sublayer {
 public:
  SourceAttention(const ModelShape& shape, const AttentionOptions& options, Norm before, Random& random);

  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) override;

  /// Of an encoder's output x [B, S, width], or [1, P, width] without `padding`, with padding from lengths [B] on
  /// (undefined: none).
  SourceRows rows(const at::Tensor& x, const at::Tensor& lengths, const Padding& padding, bool bfloat16) const;

  /// PREFIXquery and so on.
  void name(const std::string& prefix, NamedTensors& parameters) { w_.name(prefix, parameters); }
  std::vector<at::Tensor*> matrices() override { return w_.matrices(); }
  Norm& before() { return before_; }

 private:
  SourceRows packed(const at::Tensor& key, const at::Tensor& value, const at::Tensor& lengths,
                    const Padding& padding) const;

  ModelShape shape_;
  double dropout_;
  Projections w_;
  Norm before_;
};

}  // namespace lapse
