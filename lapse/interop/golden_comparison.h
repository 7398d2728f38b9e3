// What a golden file holds beside what we compute: the largest error of each kind of number.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lapse/interop/golden.h"

namespace lapse {

/// Error if a golden file's tensor has another shape.
void require_golden_shape(const std::string& name, const at::Tensor& tensor, at::IntArrayRef shape);

class GoldenComparison {
 public:
  void compare(const std::string& what, const std::string& tensor, const at::Tensor& ours, const at::Tensor& theirs);
  void add(const std::string& what, const std::string& tensor, double error);
  /// The largest of each kind. Errors are relative to the tensor's largest absolute value; or to kSmall of that of all
  /// tensors of its kind, if this is more: where a gradient is 0 but for rounding, both sides hold rounding alone.
  std::vector<GoldenError> errors() const;

  constexpr static double kSmall = 1e-3;

 private:
  struct Entry {
    std::string what, tensor;
    double difference, largest;
  };
  std::vector<Entry> entries_;
};

}  // namespace lapse
