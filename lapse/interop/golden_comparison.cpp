#include "lapse/interop/golden_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

void require_golden_shape(const std::string& name, const Tensor& tensor, at::IntArrayRef shape) {
  if (tensor.sizes() == shape) return;
  fail(fmt::format("the golden file's tensor '{}' has the shape [{}]; its metadata ask for [{}]", name,
                   fmt::join(tensor.sizes(), ", "), fmt::join(shape, ", ")));
}

void GoldenComparison::compare(const std::string& what, const std::string& tensor, const Tensor& ours,
                               const Tensor& theirs) {
  require_golden_shape(tensor, theirs, ours.sizes());  // else they would be broadcast
  const double largest = theirs.abs().max().item<double>();
  const double difference = (ours.detach().to(at::kDouble) - theirs.to(at::kDouble)).abs().max().item<double>();
  add(what, tensor, largest > 0 ? difference / largest : difference);
}

void GoldenComparison::add(const std::string& what, const std::string& tensor, double error) {
  auto found = std::find_if(errors_.begin(), errors_.end(), [&](const GoldenError& e) { return e.what == what; });
  if (found == errors_.end()) found = errors_.insert(errors_.end(), GoldenError{what, -1, "", 0});
  ++found->tensors;
  const bool worse = std::isnan(error) || error > found->error;  // NaN is the worst, and stays
  if (worse && !std::isnan(found->error)) found->error = error, found->tensor = tensor;
}

}  // namespace lapse
