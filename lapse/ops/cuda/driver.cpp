#include "lapse/ops/cuda/driver.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace lapse::cuda {
namespace {

// Numbers of the driver's interface, which never change.
constexpr int kMajor = 75, kMinor = 76;        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
constexpr int kMaxDynamicSharedSizeBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int64_t kLargestGrid = (1LL << 31) - 1, kLargestOther = 65535;

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  TORCH_CHECK(function != nullptr, "libcuda.so.1 has no ", name, ": the NVIDIA driver is too old");
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver;
  return driver;
}

Driver::Driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  TORCH_CHECK(library != nullptr, "cannot load NVIDIA's driver: ", dlerror());
  find(library, "cuCtxGetDevice", current_device_);
  find(library, "cuDeviceGet", get_device_);
  find(library, "cuDevicePrimaryCtxRetain", retain_context_);
  find(library, "cuCtxSetCurrent", set_context_);
  find(library, "cuDeviceGetAttribute", attribute_);
  find(library, "cuModuleLoadData", load_);
  find(library, "cuModuleGetFunction", function_);
  find(library, "cuFuncSetAttribute", set_attribute_);
  find(library, "cuLaunchKernel", launch_);
  find(library, "cuGetErrorString", error_string_);
}

void Driver::check(int result, const char* what) const {
  if (result == 0) return;
  const char* text = nullptr;
  if (error_string_(result, &text) != 0 || text == nullptr) text = "unknown error";
  TORCH_CHECK(false, "CUDA: ", what, ": ", text, " (", result, ")");
}

int Driver::device() const {
  int device = 0;
  if (current_device_(&device) == 0) return device;
  // A thread of its own, such as autograd's, that has not called CUDA yet: libtorch's context is the device's first.
  void* context = nullptr;
  check(get_device_(&device, c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index()), "finding the device");
  check(retain_context_(&context, device), "the device's context");
  check(set_context_(context), "the device's context");
  return device;
}

int Driver::architecture() const {
  int major = 0, minor = 0;
  check(attribute_(&major, kMajor, device()), "compute capability");
  check(attribute_(&minor, kMinor, device()), "compute capability");
  return 10 * major + minor;
}

void* Driver::load_module(const void* image) const {
  void* module = nullptr;
  check(load_(&module, image), "loading a kernel");
  return module;
}

void* Driver::function(void* module, const char* symbol) const {
  void* function = nullptr;
  check(function_(&function, module, symbol), symbol);
  return function;
}

void Driver::allow_shared(void* function, int64_t bytes) const {
  check(set_attribute_(function, kMaxDynamicSharedSizeBytes, static_cast<int>(bytes)), "asking for shared memory");
}

void Driver::launch(void* function, Grid grid, int64_t threads, int64_t shared, void* stream, void** arguments) const {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  TORCH_CHECK(grid.x <= kLargestGrid && grid.y <= kLargestOther && grid.z <= kLargestOther, "CUDA: a grid of ", grid.x,
              " x ", grid.y, " x ", grid.z, " programs; at most 65535 heads and samples");
  const auto u = [](int64_t x) { return static_cast<unsigned>(x); };
  check(launch_(function, u(grid.x), u(grid.y), u(grid.z), u(threads), 1, 1, u(shared), stream, arguments, nullptr),
        "launching a kernel");
}

}  // namespace lapse::cuda
