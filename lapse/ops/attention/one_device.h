// Kernels are chosen by q's device, and read all of a call's tensors there.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>
#include <optional>
#include <utility>

namespace lapse {

/// c10::Error, which begins with the operator's name, where one of those that are given is on another device than q.
inline void check_device(const char* op, const at::Tensor& q,
                         std::initializer_list<std::pair<const char*, std::optional<at::Tensor>>> given) {
  for (const auto& [name, x] : given)
    TORCH_CHECK(!x || x->device() == q.device(), op, ": ", name, " must be on ", q.device(), ", as q is, got ",
                x->device());
}

}  // namespace lapse
