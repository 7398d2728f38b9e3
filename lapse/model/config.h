// The base model's options (docs/equations.md, "The base model").
#pragma once

#include <functional>

#include "lapse/core/config.h"
#include "lapse/forgetting/method.h"
#include "lapse/model/adaptive_config.h"

namespace lapse {

struct ModelConfig {
  int64_t width = 128;
  int64_t layers = 4;
  int64_t encoder_layers = 0;
  int64_t heads = 4;
  int64_t head_dim = 0;
  int64_t feed_forward = 512;
  double dropout = 0;
  double layer_drop = 0;
  double embedding_dropout = 0, residual_dropout = 0, output_dropout = 0;
  std::string norm = "post";
  std::string norm_kind = "layer";
  double norm_epsilon = 1e-5;
  std::string activation = "relu";
  bool biases = true;
  bool normed_heads = false;
  bool scaled_logits = true;
  bool attend_self = false;
  std::string positions = "relative";
  int64_t bucket_distance = 128;
  std::string initialisation = "default";
  std::string input = "tokens", output = "softmax";
  AdaptiveConfig adaptive;

  /// `may_read_self`: whether the forgetting method leaves it to attend_self if tokens attend themselves.
  Fields fields(const std::function<bool()>& may_read_self = {});
  int64_t head_width() const { return head_dim > 0 ? head_dim : width / heads; }
  int64_t inner_width() const;  ///< of the feed-forward layer
  void check() const;           ///< Error if width does not divide into heads
};

/// What the forgetting method may know of the model.
ModelShape shape_of(const ModelConfig& config, int64_t block);

}  // namespace lapse
