// Tensors in safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include "lapse/core/safetensors.h"

namespace lapse {

/// A copy of a file's tensor. Error for a dtype that has no counterpart here.
at::Tensor to_tensor(const TensorEntry& entry);

/// A view of a contiguous tensor on the CPU, which must outlive the entry.
TensorEntry to_entry(const at::Tensor& tensor);

}  // namespace lapse
