// The feed-forward half of a layer.
#pragma once

#include "lapse/nn/linear.h"
#include "lapse/nn/norm.h"
#include "lapse/nn/sublayer.h"

namespace lapse {

struct FeedForwardOptions {
  int64_t width, inner;
  std::string activation = "relu";  ///< or "gelu", "swiglu"
  bool biases = true;
  double dropout = 0;  ///< of the inner features
  std::string initialisation = "default";
  double divisor = 1;  ///< of the initial W_2 and b_2
};

/// W_2 dropout(relu(W_1 x + b_1)) + b_2, with gelu in place of relu, or SwiGLU: W_2 dropout(silu(W_g x) * W_1 x)
/// (docs/equations.md, "The base model"), of x = before(h).
class FeedForward : public Sublayer {
 public:
  FeedForward(const FeedForwardOptions& options, Norm before, Random& random);

  at::Tensor operator()(const at::Tensor& h, LayerPass& pass) override;
  void name(NamedTensors& parameters);
  std::vector<at::Tensor*> matrices() override { return {&first_.weight, &gate_.weight, &second_.weight}; }
  Norm& before() { return before_; }

 private:
  double dropout_;
  bool gelu_;
  Norm before_;
  Linear first_, second_, gate_;
};

}  // namespace lapse
