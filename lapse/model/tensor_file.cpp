#include "lapse/model/tensor_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

const std::pair<const char*, at::ScalarType> kTypes[] = {
    {"F32", at::kFloat}, {"F64", at::kDouble}, {"BF16", at::kBFloat16}, {"F16", at::kHalf}, {"I64", at::kLong},
    {"I32", at::kInt},   {"I16", at::kShort},  {"I8", at::kChar},       {"U8", at::kByte},  {"BOOL", at::kBool},
};

}  // namespace

bool is_known_type(const std::string& dtype) {
  return std::ranges::any_of(kTypes, [&](const auto& known) { return known.first == dtype; });
}

at::Tensor to_tensor(const TensorEntry& entry) {
  for (const auto& [name, type] : kTypes) {
    if (entry.dtype != name) continue;
    at::Tensor tensor = at::empty(entry.shape, type);
    if (!entry.bytes.empty()) std::memcpy(tensor.data_ptr(), entry.bytes.data(), entry.bytes.size());
    return tensor;
  }
  fail("tensors of dtype " + entry.dtype + " cannot be read");
}

TensorEntry to_entry(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(), "to_entry needs a contiguous tensor on the CPU");
  for (const auto& [name, type] : kTypes)
    if (tensor.scalar_type() == type)
      return {name, tensor.sizes().vec(), {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()}};
  TORCH_CHECK(false, "tensors of dtype ", tensor.scalar_type(), " cannot be written");
}

void TensorEntries::add(const std::string& name, const at::Tensor& tensor) {
  kept_.push_back(tensor.detach().to(at::kCPU).contiguous());
  entries_[name] = to_entry(kept_.back());
}

}  // namespace lapse
