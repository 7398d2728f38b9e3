#include "lapse/ops/parallel/scratch.h"

#include <algorithm>
#include <new>

namespace lapse {

void* Scratch::bytes(int64_t n) {
  constexpr int64_t kAlignment = 64;
  n = (std::max<int64_t>(n, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ == blocks_.size()) blocks_.emplace_back();
  auto& block = blocks_[used_++];
  if (block.size < n) {
    block.memory.reset(std::aligned_alloc(kAlignment, n));
    block.size = block.memory == nullptr ? 0 : n;
    if (block.memory == nullptr) throw std::bad_alloc();
  }
  return block.memory.get();
}

Scratch& Scratch::of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace lapse
