#include "lapse/ops/parallel/small_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <array>
#include <bit>
#include <vector>

namespace lapse {
namespace {

constexpr size_t kLeast = 64, kSizes = 9, kKept = 64;  // 64 bytes, 128, ... 16 KiB

// A block begins with its size's number; the tensor's memory follows 64 bytes later.
constexpr size_t kHeader = 64;

/// Freed blocks of each size. Never destroyed: tensors may outlive what a thread cleans up at its end.
std::array<std::vector<void*>, kSizes>& kept() {
  static thread_local auto* lists = new std::array<std::vector<void*>, kSizes>;
  return *lists;
}

void release(void* block) {
  auto& list = kept()[*static_cast<size_t*>(block)];
  if (list.size() < kKept)
    list.push_back(block);
  else
    c10::free_cpu(block);
}

class SmallBlocks : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = bytes <= kLeast ? 0 : std::bit_width((bytes - 1) / kLeast);
    if (bytes == 0 || size >= kSizes) return c10::GetCPUAllocator()->allocate(bytes);
    auto& list = kept()[size];
    void* block = nullptr;
    if (list.empty()) {
      block = c10::alloc_cpu(kHeader + (kLeast << size));
      *static_cast<size_t*>(block) = size;
    } else {
      block = list.back();
      list.pop_back();
    }
    return {static_cast<char*>(block) + kHeader, block, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
};

}  // namespace

c10::Allocator* small_blocks() {
  static SmallBlocks blocks;
  return &blocks;
}

}  // namespace lapse
