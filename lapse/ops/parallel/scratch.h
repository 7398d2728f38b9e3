// Working memory of a thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace lapse {

/// A thread's working memory, kept between calls: fresh pages cost more than the arithmetic on small tiles.
class Scratch {
 public:
  /// n elements of T, aligned, uninitialised; valid until `release`.
  template <class T>
  T* take(int64_t n) {
    return static_cast<T*>(bytes(n * static_cast<int64_t>(sizeof(T))));
  }
  void release() { used_ = 0; }
  static Scratch& of_thread();

 private:
  void* bytes(int64_t n);
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    int64_t size = 0;
  };
  std::vector<Block> blocks_;
  size_t used_ = 0;
};

}  // namespace lapse
