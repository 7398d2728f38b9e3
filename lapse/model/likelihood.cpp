#include "lapse/model/likelihood.h"

#include <fmt/format.h>

#include <cmath>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

Tensor scored_places(const Tensor& target) {
  const Tensor places = at::nonzero(target.flatten() != kNoTarget).squeeze(1);
  return places.size(0) == target.numel() ? Tensor() : places;
}

Tensor scored_targets(const Tensor& target, const Tensor& places) {
  return places.defined() ? target.flatten().index_select(0, places) : target.flatten();
}

Likelihood likelihood(const Tensor& logits, const Tensor& target, const Tensor& places,
                      const LikelihoodOptions& options) {
  const Tensor scored = scored_targets(target, places);
  const Tensor flat = logits.flatten(0, -2);
  Likelihood result{at::cross_entropy_loss(flat, scored, {}, at::Reduction::Sum), scored.numel(), {}, {}};
  if (options.answers) result.right = flat.detach().argmax(1) == scored;
  if (options.each) result.each = at::cross_entropy_loss(flat, scored, {}, at::Reduction::None);
  return result;
}

void require_finite(double nats) {
  if (!std::isfinite(nats))
    fail(fmt::format("the loss is {}: the model's weights are too large, as after a run that diverged",
                     std::isnan(nats) ? "nan" : "infinite"));
}

}  // namespace lapse
