#include "lapse/model/likelihood.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/cross_entropy.h"
#include "lapse/ops/dense/total.h"
#include "lapse/ops/waiting.h"

namespace lapse {

using at::Tensor;

Scored scored(const Tensor& target, at::Device device) {
  const Tensor all = target.flatten(), places = at::nonzero(all != kNoTarget).squeeze(1);
  if (places.size(0) == all.numel()) return {{}, sent(all, device)};
  return {sent(places, device), sent(all.index_select(0, places), device)};
}

Likelihood likelihood(Tensor&& logits, const Tensor& target, const LikelihoodOptions& options) {
  Tensor flat = std::move(logits).flatten(0, -2);
  Likelihood result{.scored = target.numel()};
  if (options.answers) result.right = flat.detach().argmax(1) == target;
  const Tensor each = cross_entropy(std::move(flat), target);
  result.nats = total(each);
  if (options.each) result.each = each;
  return result;
}

void require_finite(double nats) {
  if (!std::isfinite(nats))
    fail(fmt::format("the loss is {}: the model's weights are too large, as after a run that diverged",
                     std::isnan(nats) ? "nan" : "infinite"));
}

}  // namespace lapse
