// Runs a golden file (tensors and metadata that another implementation wrote) and measures how far our numbers are from
// it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lapse/core/safetensors.h"

namespace lapse {

/// One kind of number: the largest error over its tensors, relative to each tensor's largest absolute value.
struct GoldenError {
  std::string what;     ///< "log_prob", "task_loss", "aux_loss", "span", "alive", "grad"
  double error = 0;     ///< for "alive" the number of counts that differ
  std::string tensor;   ///< where it is largest
  int64_t tensors = 0;  ///< how many were compared
};

/// A file whose metadata have "t5" is of a T5 (golden_t5.h); one with the tensor "q" is of the method's operator:
/// everything that follows from its inputs is compared (GoldenEntry::outputs). Else it builds the file's model, runs
/// its blocks one after another with memory carried (weights fixed, in training mode, memory starting from zero
/// vectors) and compares everything that the file holds. Error if a tensor or a metadata key is missing or ill-shaped,
/// or the method is unknown. `type`: float32 or float64.
std::vector<GoldenError> run_golden(const SafetensorsFile& file, at::ScalarType type);

}  // namespace lapse
