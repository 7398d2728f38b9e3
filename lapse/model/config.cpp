#include "lapse/model/config.h"

#include <fmt/format.h>

#include "lapse/core/error.h"

namespace lapse {

Fields ModelConfig::fields() {
  return {
      field("width", width, "features of a hidden state").in(1, 65536),
      field("layers", layers, "attention and feed-forward pairs").in(1, 1024),
      field("heads", heads, "attention heads per layer").in(1, 1024),
      field("head_dim", head_dim, "features of a head; 0: width / heads").in(0, 4096),
      field("feed_forward", feed_forward, "hidden features of the feed-forward layer").in(1, 1 << 20),
      field("dropout", dropout, "on attention weights and after relu, in training").in(0, 0.99),
      field("layer_drop", layer_drop, "probability that a training block skips a layer").in(0, 0.99),
      field("norm", norm, "layer norm after each sublayer, or before it").one_of({"post", "pre"}),
      field("initialisation", initialisation, "of linear weights: uniform within 1/sqrt(fan-in), or Glorot's uniform")
          .one_of({"default", "glorot"}),
  };
}

void ModelConfig::check() const {
  if (head_dim == 0 && width % heads != 0)
    fail(fmt::format("model.width = {} does not divide into model.heads = {}: change one, or set model.head_dim", width,
                     heads));
}

}  // namespace lapse
