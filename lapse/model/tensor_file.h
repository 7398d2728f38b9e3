// Tensors in safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "lapse/core/safetensors.h"

namespace lapse {

/// Whether a file's dtype, such as "F32", has a counterpart here.
bool is_known_type(const std::string& dtype);
/// A copy of a file's tensor. Error for a dtype that has no counterpart here.
at::Tensor to_tensor(const TensorEntry& entry);

/// A view of a contiguous tensor on the CPU, which must outlive the entry.
TensorEntry to_entry(const at::Tensor& tensor);

/// Tensors for write_safetensors, of any device and layout: what must be copied for it is kept here.
class TensorEntries {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  const std::map<std::string, TensorEntry>& entries() const { return entries_; }

 private:
  std::vector<at::Tensor> kept_;
  std::map<std::string, TensorEntry> entries_;
};

}  // namespace lapse
