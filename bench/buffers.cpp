#include "bench/buffers.h"

#include <c10/core/Device.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace lapse::bench {
namespace {

constexpr size_t kAlignment = 64;  // of libtorch's own; also the room before each block, which holds its size

class Pool : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    void* block = n == 0 ? nullptr : take((n + kAlignment - 1) / kAlignment * kAlignment);
    return {block, block, &give, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }

  void keep(bool on) {
    const std::lock_guard lock(mutex_);
    keeping_ = on;
    if (on) return;
    for (auto& [size, blocks] : spare_)
      for (void* block : blocks) release(block);
    spare_.clear();
  }

 private:
  static size_t& size_of(void* block) { return *reinterpret_cast<size_t*>(static_cast<char*>(block) - kAlignment); }
  static void release(void* block) { std::free(static_cast<char*>(block) - kAlignment); }
  static void give(void* block);

  void* take(size_t size) {
    {
      const std::lock_guard lock(mutex_);
      if (auto& blocks = spare_[size]; !blocks.empty()) {
        void* block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    void* whole = std::aligned_alloc(kAlignment, size + kAlignment);
    if (!whole) throw std::bad_alloc();
    void* block = static_cast<char*>(whole) + kAlignment;
    size_of(block) = size;
    return block;
  }

  std::mutex mutex_;
  bool keeping_ = false;
  std::map<size_t, std::vector<void*>> spare_;
};

/// Never destroyed: tensors may outlive everything.
Pool& pool() {
  static auto* the = new Pool;
  return *the;
}

void Pool::give(void* block) {
  if (!block) return;
  Pool& p = pool();
  const std::lock_guard lock(p.mutex_);
  if (p.keeping_)
    p.spare_[size_of(block)].push_back(block);
  else
    release(block);
}

}  // namespace

ReusedBuffers::ReusedBuffers() : before_(c10::GetAllocator(c10::DeviceType::CPU)) {
  pool().keep(true);
  c10::SetAllocator(c10::DeviceType::CPU, &pool());
}

ReusedBuffers::~ReusedBuffers() {
  c10::SetAllocator(c10::DeviceType::CPU, before_);
  pool().keep(false);
}

}  // namespace lapse::bench
