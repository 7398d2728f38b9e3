#include "lapse/train/threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// Error unless so many threads can be started. Where one cannot, for want of memory, OpenMP ends the program in words
/// of its own, and libtorch's pool of threads waits for it for ever; so this is tried before. No std::thread: it frees
/// memory within the thread, for which malloc reserves 64 MB of addresses.
void require_threads(int64_t count) {
  std::latch tried(1);
  const auto wait = [](void* latch) -> void* {
    static_cast<std::latch*>(latch)->wait();
    return nullptr;
  };
  std::vector<pthread_t> threads;
  for (pthread_t thread; std::ssize(threads) < count && ::pthread_create(&thread, nullptr, wait, &tried) == 0;)
    threads.push_back(thread);
  tried.count_down();
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
  if (std::ssize(threads) < count)
    fail("there is no memory to start all threads; raise the limit on it, or give fewer (--threads, train.threads)");
}

/// oneDNN crashes where it has no room for the machine code of a product, instead of saying so.
void require_room() {
  constexpr size_t kRoom = 16 << 20;  // bytes: for that code, and what a small model computes before it
  void* room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) fail("less than 16 MB of memory is left, too little to compute; raise the limit on it");
  ::munmap(room, kRoom);
}

}  // namespace

void use_threads(int64_t count) {
  constexpr int64_t kMostPerCore = 8;
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (count > kMostPerCore * cores)
    fail(fmt::format("{} threads: this machine has {} cores; give at most {} (--threads, train.threads)", count, cores,
                     kMostPerCore * cores));
  // Those beside this one: of OpenMP, and of the pool that set_num_threads makes.
  require_threads(count > 0 ? 2 * (count - 1) : at::get_num_threads() - 1);
  if (count > 0) at::set_num_threads(static_cast<int>(count));
  at::parallel_for(0, at::get_num_threads(), 1, [](int64_t, int64_t) {});  // OpenMP's start now, while there is room
  require_room();
}

}  // namespace lapse
