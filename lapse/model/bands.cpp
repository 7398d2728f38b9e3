#include "lapse/model/bands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/linear.h"

namespace lapse {
namespace {

using at::Tensor;

void check_cutoffs(const std::vector<int64_t>& cutoffs, int64_t words) {
  const auto refuse = [&](const std::string& why) {
    fail(fmt::format("adaptive.cutoffs = [{}] {}", fmt::join(cutoffs, ", "), why));
  };
  if (std::ranges::adjacent_find(cutoffs, std::greater_equal()) != cutoffs.end() ||
      (!cutoffs.empty() && cutoffs[0] < 1))
    refuse("must be whole numbers of 1 or more, each larger than the one before it");
  if (!cutoffs.empty() && cutoffs.back() >= words)
    refuse(
        fmt::format("must be smaller than the vocabulary, which has {} words here: leave out the larger ones", words));
}

int64_t width_of(int64_t band, int64_t width, int64_t factor) {
  int64_t divided = width;
  for (int64_t i = 0; i < band; ++i) {
    if (divided % factor != 0)
      fail(
          fmt::format("model.width = {} does not divide by adaptive.factor = {} as often as there are "
                      "adaptive.cutoffs, {} times: change the width or the factor, or leave out cutoffs",
                      width, factor, band));
    divided /= factor;
  }
  return divided;
}

Tensor scaled(const Tensor& parameter, double factor) {
  parameter.detach().mul_(factor);
  return parameter;
}

}  // namespace

Fields AdaptiveConfig::fields() {
  return {
      field("cutoffs", cutoffs,
            "where bands begin, ascending: words below the first have all features of model.width, those of each "
            "further band fewer. Words are numbered by how frequent they are in the training text; empty: one band"),
      field("factor", factor, "how many times fewer features each band has than the one before it").in(1, 64),
      field("project_first", project_first, "the first band has a projection too, as all others"),
      field("tied", tied, "the output shares the input's embeddings and projections, where both are adaptive"),
  };
}

Bands::Bands(const ModelConfig& config, int64_t words, Random& random) {
  const auto& [cutoffs, factor, project_first, tied] = config.adaptive;
  check_cutoffs(cutoffs, words);
  edges_ = {0};
  edges_.insert(edges_.end(), cutoffs.begin(), cutoffs.end());
  edges_.push_back(words);
  std::vector<int64_t> widths;  // all, before the first band takes memory
  for (int64_t i = 0; i <= std::ssize(cutoffs); ++i) widths.push_back(width_of(i, config.width, factor));
  for (int64_t i = 0; i <= std::ssize(cutoffs); ++i) {
    const int64_t width = widths[i];
    embeddings_.push_back(
        scaled(normal_parameter({size(i), width}, random), 1 / std::sqrt(static_cast<double>(width))));
    projections_.push_back(i > 0 || project_first ? linear_weight(config.width, width, config.initialisation, random)
                                                  : Tensor());
  }
}

Tensor Bands::band_of(const Tensor& words) const {
  Tensor band = at::zeros_like(words);
  for (int64_t i = 1; i < count(); ++i) band = band + (words >= begin(i));
  return band;
}

Tensor Bands::vectors(int64_t band, const Tensor& words) const {
  Tensor e = at::embedding(embeddings_[band], words - begin(band));
  if (e.scalar_type() == at::kBFloat16) e = e.to(at::kFloat);
  return projections_[band].defined() ? lapse::linear(e, projections_[band]) : e;
}

Tensor Bands::products(int64_t band, const Tensor& x, bool bfloat16) const {
  const LinearOptions how{.bfloat16 = bfloat16};
  const Tensor& P = projections_[band];
  return lapse::linear(P.defined() ? lapse::linear(x, P.t(), how) : x, embeddings_[band], how);
}

NamedTensors Bands::parameters(const std::string& name) {
  NamedTensors all;
  for (int64_t i = 0; i < count(); ++i) {
    all.emplace_back(fmt::format("{}.{}.weight", name, i), &embeddings_[i]);
    if (projections_[i].defined()) all.emplace_back(fmt::format("{}.{}.projection", name, i), &projections_[i]);
  }
  return all;
}

void Bands::to_bfloat16() {
  for (auto* tensors : {&embeddings_, &projections_})
    for (Tensor& tensor : *tensors)
      if (tensor.defined()) tensor = tensor.detach().to(at::kBFloat16);
}

}  // namespace lapse
