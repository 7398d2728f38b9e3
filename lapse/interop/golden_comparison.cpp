#include "lapse/interop/golden_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

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
  entries_.push_back({what, tensor, difference, largest});
}

void GoldenComparison::add(const std::string& what, const std::string& tensor, double error) {
  entries_.push_back({what, tensor, error, 1});
}

std::vector<GoldenError> GoldenComparison::errors() const {
  std::map<std::string, double> most;
  for (const Entry& entry : entries_) most[entry.what] = std::max(most[entry.what], entry.largest);
  std::vector<GoldenError> all;
  for (const Entry& entry : entries_) {
    const bool zero = entry.largest <= kRounding * most[entry.what];
    const double size = zero ? most[entry.what] : entry.largest;
    const double error = size > 0 ? entry.difference / size : entry.difference;
    auto found = std::ranges::find(all, entry.what, &GoldenError::what);
    if (found == all.end()) found = all.insert(all.end(), GoldenError{entry.what, -1, "", 0});
    ++found->tensors;
    const bool worse = std::isnan(error) || error > found->error;  // NaN is the worst, and stays
    if (worse && !std::isnan(found->error)) found->error = error, found->tensor = entry.tensor;
  }
  return all;
}

}  // namespace lapse
