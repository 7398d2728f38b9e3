#include "lapse/ops/parallel/small_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <array>
#include <bit>

namespace lapse {
namespace {

constexpr size_t kLeast = 64, kSizes = 13;     // 64 bytes, 128, ... 256 KiB
constexpr size_t kKept = 64, kMost = 1 << 20;  // blocks of a size that are kept, and their bytes

// A block begins with its size's number; the tensor's memory follows 64 bytes later.
constexpr size_t kHeader = 64;

/// Released blocks of one size. Trivial to destroy, because tensors may outlive what a thread cleans up at its end.
struct Stack {
  std::array<void*, kKept> blocks;
  size_t count;
};
thread_local std::array<Stack, kSizes> kept = {};
thread_local bool ended = false;  // trivial too: what is released from now on is freed

/// Frees what a thread kept when it ends.
struct AtEnd {
  bool used = false;  // a thread that never touches this has nothing to free
  ~AtEnd() {
    ended = true;
    for (auto& stack : kept)
      while (stack.count > 0) c10::free_cpu(stack.blocks[--stack.count]);
  }
};
thread_local AtEnd at_end;

void release(void* block) {
  const size_t size = *static_cast<size_t*>(block);
  Stack& stack = kept[size];
  if (ended || stack.count == std::min(kKept, kMost / (kLeast << size))) return c10::free_cpu(block);
  at_end.used = true;  // the first use in a thread is what makes its destructor run
  stack.blocks[stack.count++] = block;
}

class SmallBlocks : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = bytes <= kLeast ? 0 : std::bit_width((bytes - 1) / kLeast);
    if (bytes == 0 || size >= kSizes) return c10::GetCPUAllocator()->allocate(bytes);
    Stack& stack = kept[size];
    void* block = stack.count > 0 ? stack.blocks[--stack.count] : c10::alloc_cpu(kHeader + (kLeast << size));
    *static_cast<size_t*>(block) = size;
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
