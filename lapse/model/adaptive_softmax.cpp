#include "lapse/model/adaptive_softmax.h"

#include <fmt/format.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/model/bands.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/cross_entropy.h"
#include "lapse/ops/dense/linear.h"
#include "lapse/ops/dense/total.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

/// The input's, if they are to be shared and there are some.
std::shared_ptr<Bands> tied_bands(const ModelConfig& config, int64_t outputs, const Input& input) {
  const auto bands = config.adaptive.tied ? input.bands() : nullptr;
  if (bands && bands->words() != outputs)
    fail(
        fmt::format("adaptive.tied = true needs an output of the words that are read, and of these {} there are {} "
                    "outputs: set adaptive.tied = false",
                    bands->words(), outputs));
  return bands;
}

/// log p(w) = log softmax(head)_w in band 0, log softmax(head)_{cluster i} + log softmax(tail i)_w in band i > 0; the
/// head has band 0's words, then the clusters 1 ... n.
class AdaptiveSoftmax : public Output {
 public:
  AdaptiveSoftmax(const ModelConfig& config, int64_t outputs, const Input& input, Random& random)
      : bands_(tied_bands(config, outputs, input)), tied_(bands_ != nullptr) {
    if (!tied_) bands_ = std::make_shared<Bands>(config, outputs, random);
    if (bands_->count() > 1)
      clusters_ = linear_weight(bands_->count() - 1, config.width, config.initialisation, random);
  }

  // log p, whose softmax is p.
  Tensor logits(const Tensor& h, bool bfloat16) const override {
    const Tensor x = h.flatten(0, -2), head = at::log_softmax(this->head(x, bfloat16), 1);
    std::vector<Tensor> all = {head.narrow(1, 0, bands_->size(0))};
    for (int64_t i = 1; i < bands_->count(); ++i)
      all.push_back(at::log_softmax(bands_->products(i, x, bfloat16), 1) + head.narrow(1, place(i), 1));
    auto shape = h.sizes().vec();
    shape.back() = bands_->words();
    return lapse::cat(all, 1).view(shape);
  }

  Likelihood likelihood(const Tensor& h, const Tensor& words, const LikelihoodOptions& options) const override {
    const Tensor x = h.flatten(0, -2), band = bands_->band_of(words);
    const auto places = places_of_each(band, bands_->count());
    const Tensor in_head = at::where(band == 0, words, band + place(0));
    Tensor each = cross_entropy(head(x, options.bfloat16), in_head);
    Likelihood result{.nats = total(each), .scored = words.numel()};
    for (int64_t i = 1; i < bands_->count(); ++i) {
      const Tensor& rows = places[i];
      if (rows.numel() == 0) continue;
      const Tensor in_tail = words.index_select(0, rows) - bands_->begin(i);
      const Tensor more = cross_entropy(bands_->products(i, x.index_select(0, rows), options.bfloat16), in_tail);
      result.nats = result.nats + total(more);
      if (options.each) each = each.index_add(0, rows, more);
    }
    if (options.each) result.each = each;
    if (options.answers) result.right = logits(x.detach(), options.bfloat16).argmax(1) == words;
    return result;
  }

  // By Zipf's law words begin ... end - 1 are about ln(end / begin) / ln(V) of a text.
  double computed() const override {
    auto sum = static_cast<double>(place(bands_->count()));
    for (int64_t i = 1; i < bands_->count(); ++i) {
      const auto begin = static_cast<double>(bands_->begin(i)), size = static_cast<double>(bands_->size(i));
      sum += size * std::log(1 + size / begin) / std::log(static_cast<double>(bands_->words()));
    }
    return sum;
  }

  NamedTensors parameters() override {
    NamedTensors all = tied_ ? NamedTensors() : bands_->parameters("output");
    if (clusters_.defined()) all.emplace_back("output.clusters", &clusters_);
    return all;
  }

  void to_bfloat16() override {
    bands_->to_bfloat16();
    if (clusters_.defined()) clusters_ = clusters_.detach().to(at::kBFloat16);
  }

 private:
  /// Where the head has cluster i.
  int64_t place(int64_t cluster) const { return bands_->size(0) + cluster - 1; }

  Tensor head(const Tensor& x, bool bfloat16) const {
    const Tensor words = bands_->products(0, x, bfloat16);
    return clusters_.defined() ? lapse::cat({words, lapse::linear(x, clusters_, {.bfloat16 = bfloat16})}, 1) : words;
  }

  std::shared_ptr<Bands> bands_;
  bool tied_;
  Tensor clusters_;  // C [n, width]; undefined if there is one band
};

}  // namespace

std::unique_ptr<Output> adaptive_softmax(const ModelConfig& config, int64_t outputs, const Input& input,
                                         Random& random) {
  return std::make_unique<AdaptiveSoftmax>(config, outputs, input, random);
}

}  // namespace lapse
