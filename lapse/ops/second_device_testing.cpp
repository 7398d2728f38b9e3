#include "lapse/ops/second_device_testing.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "lapse/ops/aten.h"
#include "lapse/ops/graph.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr auto kType = c10::DeviceType::PrivateUse1;

// Addresses of the device are those of the host with a bit set that no address of a process has.
constexpr uintptr_t kAddressBit = uintptr_t{1} << 50;

void* address(void* host) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kAddressBit); }
void* host(void* address) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~kAddressBit); }

class Allocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = address(std::malloc(std::max<size_t>(bytes, 1)));
    return {data, data, release, second_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(host(to), host(const_cast<void*>(from)), bytes);
  }

 private:
  static void release(void* data) { std::free(host(data)); }
};

Allocator allocator;

// One device, which has always finished what it was asked to do.
struct Guard : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device exchangeDevice(c10::Device) const override { return second_device(); }
  c10::Device getDevice() const override { return second_device(); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

std::unique_ptr<Graph> make_recorded_graph(at::Device);

const bool registered = [] {
  c10::register_privateuse1_backend("second");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kType, &allocator);
  register_graphs(kType, make_recorded_graph);
  return true;
}();
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

/// The same memory as a tensor of the CPU.
Tensor on_host(const Tensor& x) {
  if (x.device().is_cpu()) return x;
  auto* data = static_cast<char*>(host(x.storage().mutable_data()));
  return at::from_blob(data + x.storage_offset() * x.element_size(), x.sizes(), x.strides(),
                       x.options().device(at::kCPU).requires_grad(false));
}

const Tensor& resize(const Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  const c10::Storage& storage = x.storage();
  const size_t bytes = (x.storage_offset() + x.numel()) * x.element_size();
  if (bytes <= storage.nbytes()) return x;
  c10::DataPtr grown = allocator.allocate(bytes);
  allocator.copy_data(grown.get(), storage.data(), storage.nbytes());
  storage.set_data_ptr(std::move(grown));
  storage.set_nbytes(bytes);
  return x;
}

int64_t reads = 0;
thread_local bool aside = false;  // while this device does by copies what a GPU does by itself

struct Aside {
  const bool before = std::exchange(aside, true);
  ~Aside() { aside = before; }
};

class RecordedGraph;
int64_t calls_to_fail = -1;                      // of the next recording; negative: none
thread_local RecordedGraph* recorder = nullptr;  // of this thread, while it records

void count_read() {
  TORCH_CHECK(aside || recorder == nullptr, "a graph is being recorded, and the host would wait for the device");
  reads += !aside;
}

/// Operators that were called, with what they were given and gave.
class RecordedGraph : public Graph {
 public:
  void replay() override {
    for (const auto& call : calls_) call();
  }

  /// A call is about to write into x, which when recording ends shall be as it was, if it was there before.
  void will_write(const Tensor& x) {
    const auto saved = [&](const auto& each) { return share(each.first, x); };
    if (was_made_here(x) || std::any_of(saved_.begin(), saved_.end(), saved)) return;
    saved_.emplace_back(x, bytes_of(x).clone());
  }
  /// What a call was given, with the shapes of now: of tensors that were there before the address alone, as a GPU's
  /// graph has it.
  c10::IValue address_of(const c10::IValue& value) const {
    if (value.isTensor()) return address_of(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> all;
      for (const Tensor& x : value.toTensorVector()) all.push_back(address_of(x));
      return all;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> all;
      for (const auto& x : value.toOptionalTensorVector()) all.push_back(x ? std::optional(address_of(*x)) : x);
      return all;
    }
    return value;
  }
  Tensor address_of(const Tensor& x) const {
    if (!x.defined() || x.device().is_cpu()) return x;
    const c10::Storage borrowed(c10::Storage::use_byte_size_t(), x.storage().nbytes(),
                                c10::DataPtr(x.storage().mutable_data(), x.device()));
    Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(was_made_here(x) ? x.storage() : borrowed),
                                                           x.key_set(), x.dtype());
    view.unsafeGetTensorImpl()->set_storage_offset(x.storage_offset());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides());
    return view;
  }
  void was_made(const Tensor& x) { made_.push_back(x); }
  void add(std::function<void()> call) {
    TORCH_CHECK(std::ssize(calls_) != fails_after_, "as if there were no memory for this");
    calls_.push_back(std::move(call));
  }

 protected:
  void begin() override { recorder = this, fails_after_ = std::exchange(calls_to_fail, -1); }
  void end() override {
    recorder = nullptr;
    for (const auto& [x, before] : saved_) bytes_of(x).copy_(before);
    for (const auto& x : made_)
      if (x.is_floating_point()) on_host(x).fill_(std::numeric_limits<double>::quiet_NaN());
    saved_.clear();
  }

 private:
  static bool share(const Tensor& x, const Tensor& y) {
    return x.storage().unsafeGetStorageImpl() == y.storage().unsafeGetStorageImpl();
  }
  bool was_made_here(const Tensor& x) const {
    return std::any_of(made_.begin(), made_.end(), [&](const Tensor& y) { return share(x, y); });
  }
  /// Of all its memory.
  static Tensor bytes_of(const Tensor& x) {
    return at::from_blob(host(x.storage().mutable_data()), {static_cast<int64_t>(x.storage().nbytes())}, at::kByte);
  }

  int64_t fails_after_ = -1;
  std::vector<std::function<void()>> calls_;
  std::vector<std::pair<Tensor, Tensor>> saved_;
  std::vector<Tensor> made_;
};

Tensor made(const Tensor& x) {
  if (recorder != nullptr) recorder->was_made(x);
  return x;
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return made(at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                        c10::dtype_or_default(type), format));
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return made(at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type)));
}

std::unique_ptr<Graph> make_recorded_graph(at::Device) { return std::make_unique<RecordedGraph>(); }

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.device().is_cpu() || (from.device().is_cpu() && !non_blocking)) count_read();
  if (recorder != nullptr && !aside && !to.device().is_cpu()) {
    recorder->will_write(to);
    recorder->add(
        [from = recorder->address_of(from), to = recorder->address_of(to)] { on_host(to).copy_(on_host(from)); });
  }
  on_host(to).copy_(on_host(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const Tensor& x) {
  count_read();
  return at::_local_scalar_dense(on_host(x));
}

/// Error unless a GPU would take this argument of an operator too.
void require_here(const c10::OperatorHandle& op, const c10::IValue& argument) {
  if (argument.isTensor()) {
    const Tensor& x = argument.toTensor();
    TORCH_CHECK(!x.defined() || x.dim() == 0 || x.device() == second_device(), op.schema().name(), ": a tensor ",
                x.sizes(), " on ", x.device(), " among tensors on ", second_device());
  } else if (argument.isGenerator()) {
    TORCH_CHECK(argument.toGenerator().device() == second_device(), op.schema().name(), ": a generator of ",
                argument.toGenerator().device(), " for a tensor on ", second_device());
  } else if (argument.isList()) {
    for (const c10::IValue& each : argument.toListRef()) require_here(op, each);
  }
}

/// Whether a tensor of bool is among the indices: they stand for those where it is true, however many these are.
bool chooses_by_mask(const c10::IValue& indices) {
  for (const c10::IValue& each : indices.toListRef())
    if (each.isTensor() && each.toTensor().defined() && each.toTensor().scalar_type() == at::kBool) return true;
  return false;
}

/// Whether a GPU must be done with everything before the host knows the shape of what comes out.
bool shape_follows_from_data(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_")
    return chooses_by_mask(arguments[1]);
  if (name == "aten::repeat_interleave") return arguments.back().isNone();  // output_size
  constexpr const char* kNames[] = {"aten::nonzero", "aten::masked_select", "aten::bincount",
                                    "aten::equal",   "aten::_unique2",      "aten::unique_consecutive"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// Tensors that the operator writes into.
std::vector<Tensor> written(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite() && arguments[i].isTensor()) all.push_back(arguments[i].toTensor());
  }
  return all;
}

using Kernel = void (*)(const c10::OperatorHandle&, torch::jit::Stack*);

/// Does `run`, and records that if a graph is being recorded.
void run_and_record(const c10::OperatorHandle& op, torch::jit::Stack* stack, Kernel run) {
  const Aside here;
  if (recorder == nullptr || here.before) return run(op, stack);  // what a call calls is not recorded
  const auto given = torch::jit::last(*stack, op.schema().arguments().size());
  torch::jit::Stack arguments;
  for (const c10::IValue& value : given) arguments.push_back(recorder->address_of(value));
  for (const Tensor& x : written(op, given)) recorder->will_write(x);
  const bool makes = written(op, given).empty();
  run(op, stack);
  const auto got = torch::jit::last(*stack, op.schema().returns().size());
  torch::jit::Stack results;
  for (const c10::IValue& value : got)
    if (makes) results.push_back(recorder->address_of(value));
  recorder->add([op, run, arguments, results] {
    const Aside there;
    torch::jit::Stack again = arguments;
    run(op, &again);
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i].isTensor() && results[i].toTensor().defined())
        on_host(results[i].toTensor()).copy_(on_host(again[i].toTensor()));
  });
}

/// The kernel of all devices, which here is the reference.
void attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_and_record(op, stack, [](const c10::OperatorHandle& reference, torch::jit::Stack* values) {
    reference.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), values);
  });
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  for (const c10::IValue& argument : arguments) require_here(op, argument);
  if (shape_follows_from_data(op, arguments)) count_read();
  run_and_record(op, stack, [](const c10::OperatorHandle& any, torch::jit::Stack* values) {
    at::native::cpu_fallback(any, values, /*error_on_views=*/true);
  });
}

}  // namespace

at::Device second_device() { return {kType, 0}; }
int64_t second_device_reads() { return reads; }
void fail_next_recording_of_second_device(int64_t calls) { calls_to_fail = calls; }

TORCH_LIBRARY_IMPL(lapse, PrivateUse1, m) {
  for (const char* name : {"ramp_attention", "ramp_attention_backward", "selective_attention",
                           "selective_attention_backward", "selective_prune"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&attention>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("unfold", at::native::unfold);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

}  // namespace lapse
