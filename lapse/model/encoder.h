// The encoder of an encoder-decoder: layers in which every token of a source attends all of it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lapse/model/layer.h"
#include "lapse/nn/positions.h"

namespace lapse {

class Encoder {
 public:
  Encoder(const ModelConfig& config, Random& random);

  /// Of an embedding h [B, S, width], or [1, P, width] without `padding`: as much. `times`: the block's;
  /// options.lengths are the sources'. `seed`: of the dropout; none: no dropout.
  at::Tensor operator()(const at::Tensor& h, const BlockTimes& times, const BlockOptions& options,
                        const Padding& padding, std::optional<uint64_t> seed) const;

  /// position, layers.0.query, ..., norm.weight.
  NamedTensors parameters();
  void to_bfloat16();  ///< Transformer::to_bfloat16

 private:
  std::unique_ptr<Positions> positions_;
  std::vector<Layer> layers_;
  Norm norm_;  // pre-norm only
};

}  // namespace lapse
