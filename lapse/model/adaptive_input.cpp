#include "lapse/model/adaptive_input.h"

#include <ATen/core/grad_mode.h>

#include "lapse/model/bands.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

// How many words each band has, the host would have to ask a GPU. Up to so many words, it costs less to compute each
// one's vector in every band.
constexpr int64_t kFew = 64;

class AdaptiveInput : public Input {
 public:
  AdaptiveInput(const ModelConfig& config, int64_t vocabulary, Random& random)
      : bands_(std::make_shared<Bands>(config, vocabulary, random)) {}

  void check(const Tensor& tokens) const override { require_tokens(tokens, bands_->words()); }
  Tensor embed(const Tensor& tokens) const override {
    check(tokens);
    const Tensor words = tokens.flatten(), band = bands_->band_of(words);
    const bool few = !words.device().is_cpu() && words.numel() <= kFew && !at::GradMode::is_enabled();
    const Tensor h = few ? by_choice(words, band) : by_band(words, band);
    return h.view({tokens.size(0), tokens.size(1), h.size(1)});
  }

  std::shared_ptr<Bands> bands() const override { return bands_; }
  NamedTensors parameters() override { return bands_->parameters("embedding"); }

 private:
  // Band by band, then in the order of the words.
  Tensor by_band(const Tensor& words, const Tensor& band) const {
    const auto places = places_of_each(band, bands_->count());
    std::vector<Tensor> vectors;
    for (int64_t i = 0; i < bands_->count(); ++i)
      if (places[i].numel() > 0) vectors.push_back(bands_->vectors(i, words.index_select(0, places[i])));
    if (vectors.empty()) return bands_->vectors(0, words);  // of no words
    return lapse::cat(vectors).index_select(0, lapse::cat(places).argsort());
  }

  // Each word as if of every band, and then of its own: nobody asks how many each has.
  Tensor by_choice(const Tensor& words, const Tensor& band) const {
    Tensor h;
    for (int64_t i = 0; i < bands_->count(); ++i) {
      const Tensor mine = band == i;
      const Tensor vectors = bands_->vectors(i, at::where(mine, words, bands_->begin(i)));
      h = i == 0 ? vectors : at::where(mine.unsqueeze(1), vectors, h);
    }
    return h;
  }

  std::shared_ptr<Bands> bands_;
};

}  // namespace

std::unique_ptr<Input> adaptive_input(const ModelConfig& config, int64_t vocabulary, Random& random) {
  return std::make_unique<AdaptiveInput>(config, vocabulary, random);
}

}  // namespace lapse
