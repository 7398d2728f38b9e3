#include "lapse/ops/cuda/kernels.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>

#include "lapse_kernel_sources.h"

namespace lapse::cuda {
namespace {

using at::Tensor;

constexpr const char* kMagic = "LAPSEGPU";

const char* type_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return "*fp32";
    case at::kBFloat16:
      return "*bf16";
    case at::kHalf:
      return "*fp16";
    case at::kLong:
      return "*i64";
    case at::kInt:
      return "*i32";
    case at::kByte:
      return "*u8";
    default:
      return "*?";
  }
}

/// A cubin runs on later devices of its own major version; else the driver compiles PTX.
bool runs_on(int built_for, int architecture) {
  return built_for / 10 == architecture / 10 && built_for <= architecture;
}

}  // namespace

Arguments& Arguments::set(const char* name, const Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "CUDA: argument ", name, " must be contiguous");
  values_[name] = {.tensor = &tensor};
  return *this;
}
Arguments& Arguments::set(const char* name, int64_t number) {
  values_[name] = {.integer = number};
  return *this;
}
Arguments& Arguments::set(const char* name, double number) {
  values_[name] = {.real = number, .is_real = true};
  return *this;
}

void Kernel::launch(Grid grid, const Arguments& arguments, const Tensor& like) const {
  std::vector<uint64_t> words(parameters_.size() + 2);  // the last two: Triton's scratch, of which no kernel uses any
  std::vector<void*> pointers;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, type] = parameters_[i];
    const auto found = arguments.values_.find(name);
    TORCH_CHECK(found != arguments.values_.end(), "CUDA: kernel ", name_, " needs the argument ", name);
    const auto& value = found->second;
    if (type[0] == '*') {
      TORCH_CHECK(value.tensor != nullptr && type == type_of(*value.tensor), "CUDA: kernel ", name_, ": ", name,
                  " must be a tensor of ", type.substr(1));
      TORCH_CHECK(value.tensor->device() == like.device() || value.tensor->numel() == 0, "CUDA: kernel ", name_, ": ",
                  name, " is on ", value.tensor->device(), ", and the queries are on ", like.device());
      const void* data = value.tensor->const_data_ptr();
      TORCH_CHECK(reinterpret_cast<uintptr_t>(data) % kAlignment == 0, "CUDA: kernel ", name_, ": ", name,
                  " does not begin at a multiple of ", kAlignment, " bytes");
      std::memcpy(&words[i], &data, sizeof data);
    } else if (type == "fp32") {
      TORCH_CHECK(value.is_real, "CUDA: kernel ", name_, ": ", name, " must be a real number");
      const auto number = static_cast<float>(value.real);
      std::memcpy(&words[i], &number, sizeof number);
    } else {
      TORCH_CHECK(!value.is_real && value.tensor == nullptr, "CUDA: kernel ", name_, ": ", name, " must be an integer");
      constexpr int64_t most = std::numeric_limits<int32_t>::max();
      TORCH_CHECK(type == "i64" || (value.integer <= most && value.integer >= -most), "CUDA: kernel ", name_, ": ",
                  name, " is too large: ", value.integer);
      std::memcpy(&words[i], &value.integer, sizeof value.integer);  // of i32 the lower half
    }
  }
  for (auto& word : words) pointers.push_back(&word);
  const c10::impl::VirtualGuardImpl guard(like.device().type());
  const c10::Stream stream = guard.getStream(like.device());
  void* handle = like.device().is_cpu() ? nullptr : guard.getStreamNativeHandle(stream);
  Driver::get().launch(function_, grid, threads_, shared_, handle, pointers.data());
}

Kernels::Kernels(const std::string& path, int architecture) : path_(path), architecture_(architecture) {
  std::ifstream file(path, std::ios::binary);
  std::string magic(8, '\0'), sources(sizeof kKernelSources - 1, '\0');
  uint64_t length = 0;
  TORCH_CHECK(file.read(magic.data(), 8) && magic == kMagic, "no compiled kernels in ", path,
              "; make them: scripts/build.sh release cuda_kernels");
  TORCH_CHECK(file.read(sources.data(), std::ssize(sources)) && sources == kKernelSources, path,
              " was compiled of other sources than this library; make it anew: scripts/build.sh release cuda_kernels");
  TORCH_CHECK(file.read(reinterpret_cast<char*>(&length), 8), path,
              " is cut short; make it anew: scripts/build.sh release cuda_kernels");
  std::string index(length, '\0');
  file.read(index.data(), static_cast<std::streamsize>(length));
  code_.assign(std::istreambuf_iterator<char>(file), {});
  std::istringstream lines(index);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Kernel k;
    int built_for = 0;
    words >> k.name_ >> built_for >> k.symbol_ >> k.threads_ >> k.shared_ >> k.queries >> k.rows >> k.heads >>
        k.cubin_.first >> k.cubin_.second >> k.ptx_.first >> k.ptx_.second;
    for (std::string word; words >> word;)
      k.parameters_.emplace_back(word.substr(0, word.find(':')), word.substr(word.find(':') + 1));
    const size_t end = std::max(k.cubin_.first + k.cubin_.second, k.ptx_.first + k.ptx_.second);
    TORCH_CHECK(end <= code_.size(), path, " is cut short; make it anew: scripts/build.sh release cuda_kernels");
    const bool whole = runs_on(built_for, architecture);
    if (!whole && (k.ptx_.second == 0 || built_for > architecture)) continue;
    if (!whole) built_for = 0;  // PTX: where there is nothing better
    const auto known = built_for_.find(k.name_);
    if (known != built_for_.end() && known->second >= built_for) continue;
    built_for_[k.name_] = built_for;
    kernels_[k.name_] = std::move(k);
  }
}

const Kernel& Kernels::find(const std::string& name) {
  const auto found = kernels_.find(name);
  TORCH_CHECK(found != kernels_.end(), "CUDA: ", path_, " has no kernel ", name, " for sm_", architecture_,
              architecture_ < 80 ? "; GPUs before compute capability 8.0 are not supported"
                                 : "; make all: scripts/build.sh release cuda_kernels");
  Kernel& kernel = found->second;
  const std::lock_guard lock(loading_);
  if (kernel.function_ == nullptr) {
    const auto offset = built_for_[name] == 0 ? kernel.ptx_.first : kernel.cubin_.first;
    void* module = Driver::get().load_module(code_.data() + offset);
    void* function = Driver::get().function(module, kernel.symbol_.c_str());
    if (kernel.shared_ > 48 << 10) Driver::get().allow_shared(function, kernel.shared_);
    kernel.function_ = function;
  }
  return kernel;
}

std::string kernels_path() {
  Dl_info here;
  TORCH_CHECK(dladdr(reinterpret_cast<void*>(&kernels_path), &here) != 0, "where is this library?");
  const std::string library = here.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "lapse_kernels.bin";
}

Kernels& Kernels::get() {
  static std::mutex mutex;
  static std::map<int, Kernels> devices;
  const std::scoped_lock lock(mutex);
  const int device = Driver::get().device();
  auto found = devices.find(device);
  if (found == devices.end()) found = devices.try_emplace(device, kernels_path(), Driver::get().architecture()).first;
  return found->second;
}

}  // namespace lapse::cuda
