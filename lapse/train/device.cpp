#include "lapse/train/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/core/process.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"

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

/// Of devices of one kind, which one is meant where no number is given: of several processes on a machine, which
/// torchrun numbers, each has its own as far as they go.
c10::DeviceIndex own_index(at::DeviceType type) {
  const char* rank = std::getenv("LOCAL_RANK");
  const c10::DeviceIndex count = c10::impl::getDeviceGuardImpl(type)->deviceCount();
  return rank && count > 0 ? static_cast<c10::DeviceIndex>(std::atoi(rank) % count) : c10::DeviceIndex{0};
}

/// The operators' kernels for NVIDIA's GPUs, in a library of their own beside that of the operators.
void load_cuda_operators() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&ramp_attention), &here) == 0) fail("where is liblapse_ops.so?");
  const fs::path folder = fs::path(here.dli_fname).parent_path();
  const fs::path kernels = folder / "lapse_kernels.bin", library = folder / "liblapse_cuda.so";
  if (!fs::exists(kernels))
    fail(fmt::format(
        "a GPU needs {}, which is not there; make it with scripts/build.sh release cuda_kernels, or use cpu",
        kernels.string()));
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) fail(fmt::format("cannot load {}", dlerror()));
  dlopen((folder / "liblapse_graphs.so").c_str(), RTLD_NOW);  // not everywhere: without it there are no graphs
}

}  // namespace

at::Device find_device(const std::string& name) {
  // Not linked, for it takes seconds to load: it registers itself.
  std::string why;
  if (name.starts_with("cuda") && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr)
    why = fmt::format(" ({})", dlerror());
  std::vector<std::string> names;
  for (const at::Device& device : all_devices()) {
    names.push_back(device.str());
    const bool unnumbered = name == c10::DeviceTypeName(device.type(), /*lower_case=*/true);
    const bool own = unnumbered && (device.is_cpu() || device.index() == own_index(device.type()));
    if (!own && name != names.back()) continue;
    if (device.is_cuda()) load_cuda_operators();
    return device;
  }
  fail(fmt::format("there is no device \"{}\" here{}; use {}", name, why, fmt::join(names, " or ")));
}

int64_t free_memory(at::Device device, int64_t processes) {
  if (!device.is_cuda()) return available_memory() / processes;
  // By name, as NVIDIA's runtime came with libtorch_cuda.so.
  using Ask = int (*)(size_t * free, size_t * total);
  const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "cudaMemGetInfo"));
  const c10::OptionalDeviceGuard there(device);
  size_t free = 0, total = 0;
  if (ask == nullptr || ask(&free, &total) != 0) return std::numeric_limits<int64_t>::max();  // then nothing is refused
  const int64_t devices = c10::impl::getDeviceGuardImpl(device.type())->deviceCount();
  return static_cast<int64_t>(free) / ((processes + devices - 1) / devices);
}

int64_t usable_memory(at::Device device, int64_t processes) {
  return (device.is_cuda() ? 0 : resident_memory()) + free_memory(device, processes);
}

int64_t peak_memory_on(at::Device device) {
  if (device.is_cpu()) return 0;
  auto* counting = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (counting == nullptr) return 0;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return counting->getDeviceStats(device.index()).allocated_bytes[kAll].peak;
}

}  // namespace lapse
