#include "lapse/train/threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// Starts OpenMP's threads now. Where one cannot be started, for want of memory, OpenMP ends the program in words of
/// its own; so whether there is room for them is tried before.
void start_threads() {
  const int count = at::get_num_threads();
  std::latch tried(1);
  std::vector<std::thread> threads;
  bool all = true;
  try {
    for (int i = 1; i < count; ++i) threads.emplace_back([&] { tried.wait(); });
  } catch (const std::system_error&) {
    all = false;
  }
  tried.count_down();
  for (std::thread& thread : threads) thread.join();
  if (!all)
    fail(
        fmt::format("there is no memory to start {} threads; raise the limit on it, or give fewer (--threads, "
                    "train.threads)",
                    count));
  at::parallel_for(0, count, 1, [](int64_t, int64_t) {});
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
  if (count > 0) at::set_num_threads(static_cast<int>(count));
  start_threads();
  require_room();
}

}  // namespace lapse
