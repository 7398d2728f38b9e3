#include "lapse/model/encoder.h"

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

Encoder::Encoder(const ModelConfig& config, Random& random)
    : positions_(position_kind(config.positions)
                     .make({.width = config.width,
                            .heads = config.heads,
                            .head_dim = config.head_width(),
                            .ages = 0,
                            .block = 0,
                            .bucket_distance = config.bucket_distance,
                            .both_ways = true},
                           random)) {
  for (int64_t l = 0; l < config.encoder_layers; ++l) layers_.push_back(Layer::of_encoder(config, random));
  if (config.norm == "pre") norm_ = Norm(config.width, config.norm_kind, config.norm_epsilon);
}

Tensor Encoder::operator()(const Tensor& embedding, const BlockTimes& times, const BlockOptions& options,
                           const Padding& padding, std::optional<uint64_t> seed) const {
  const Ages ages = positions_->ages();
  MemoryTable none(times.start.size(0));
  Tensor h = embedding;
  for (size_t l = 0; l < layers_.size(); ++l) {
    LayerPass pass{times, options, ages, Stored::inputs, none};
    pass.padding = padding;
    if (seed) pass.draws.seed = mix64(*seed + l);
    h = layers_[l](h, pass);
  }
  return norm_(h);
}

NamedTensors Encoder::parameters() {
  NamedTensors all = {{"position", &positions_->table()}};
  for (size_t l = 0; l < layers_.size(); ++l)
    for (auto& [name, tensor] : layers_[l].parameters())
      all.emplace_back("layers." + std::to_string(l) + "." + name, tensor);
  norm_.name("norm", all);
  return all;
}

void Encoder::to_bfloat16() {
  for (auto& layer : layers_) layer.to_bfloat16();
}

}  // namespace lapse
