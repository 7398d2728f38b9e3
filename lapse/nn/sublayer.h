// A part of a layer that adds something to the hidden state.
#pragma once

#include "lapse/nn/block.h"

namespace lapse {

class Sublayer {
 public:
  virtual ~Sublayer() = default;
  /// What to add to h [B, K, width], or [1, P, width] without LayerPass::padding; at BlockOptions::places, numbers in
  /// this h, if the pass has some; undefined: nothing. A sublayer behind one that chose places gets h of those.
  virtual at::Tensor operator()(const at::Tensor& h, LayerPass& pass) = 0;
  /// The weights that inputs are multiplied by, for Transformer::to_bfloat16; undefined where there are none.
  virtual std::vector<at::Tensor*> matrices() = 0;
};

}  // namespace lapse
