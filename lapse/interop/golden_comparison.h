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
  const std::vector<GoldenError>& errors() const { return errors_; }

 private:
  std::vector<GoldenError> errors_;
};

}  // namespace lapse
