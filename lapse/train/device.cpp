#include "lapse/train/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// Those of libtorch, and of what registers with it.
std::vector<at::Device> all_devices() {
  std::vector<at::Device> all = {at::kCPU};
  for (const auto type : {at::kCUDA, at::kPrivateUse1}) {
    if (!c10::impl::hasDeviceGuardImpl(type)) continue;
    const c10::DeviceIndex count = c10::impl::getDeviceGuardImpl(type)->deviceCount();
    for (c10::DeviceIndex i = 0; i < count; ++i) all.emplace_back(type, i);
  }
  return all;
}

}  // namespace

at::Device find_device(const std::string& name) {
  // Not linked, for it takes seconds to load: it registers itself.
  if (name.starts_with("cuda")) dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  std::vector<std::string> names;
  for (const at::Device& device : all_devices()) {
    names.push_back(device.str());
    const bool first = device.index() == 0 && name == c10::DeviceTypeName(device.type(), /*lower_case=*/true);
    if (first || name == names.back()) return device;
  }
  fail(fmt::format("there is no device \"{}\" here; use {}", name, fmt::join(names, " or ")));
}

}  // namespace lapse
