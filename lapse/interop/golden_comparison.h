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
  /// The largest of each kind. Errors are relative to the tensor's largest absolute value. Where the file has 0 but for
  /// float64's rounding, beside the largest tensor of its kind, they are relative to that one's.
  std::vector<GoldenError> errors() const;

  constexpr static double kRounding = 1e-14;

 private:
  struct Entry {
    std::string what, tensor;
    double difference, largest;
  };
  std::vector<Entry> entries_;
};

}  // namespace lapse
