#include "lapse/model/adaptive_input.h"

#include "lapse/model/bands.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

class AdaptiveInput : public Input {
 public:
  AdaptiveInput(const ModelConfig& config, int64_t vocabulary, Random& random)
      : bands_(std::make_shared<Bands>(config, vocabulary, random)) {}

  // Band by band, then in the order of the tokens.
  Tensor embed(const Tensor& tokens, const Tensor&) const override {
    const Tensor words = tokens.flatten(), band = bands_->band_of(words);
    const auto places = places_of_each(band, bands_->count());
    std::vector<Tensor> vectors;
    for (int64_t i = 0; i < bands_->count(); ++i)
      if (places[i].numel() > 0) vectors.push_back(bands_->vectors(i, words.index_select(0, places[i])));
    const Tensor h = lapse::cat(vectors).index_select(0, lapse::cat(places).argsort());
    return h.view({tokens.size(0), tokens.size(1), -1});
  }

  std::shared_ptr<Bands> bands() const override { return bands_; }
  NamedTensors parameters() override { return bands_->parameters("embedding"); }

 private:
  std::shared_ptr<Bands> bands_;
};

}  // namespace

std::unique_ptr<Input> adaptive_input(const ModelConfig& config, int64_t vocabulary, Random& random) {
  return std::make_unique<AdaptiveInput>(config, vocabulary, random);
}

}  // namespace lapse
