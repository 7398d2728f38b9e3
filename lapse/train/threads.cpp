#include "lapse/train/threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "lapse/core/error.h"

namespace lapse {

void use_threads(int64_t count) {
  constexpr int64_t kMostPerCore = 8;
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (count > kMostPerCore * cores)
    fail(fmt::format("{} threads: this machine has {} cores; give at most {} (--threads, train.threads)", count, cores,
                     kMostPerCore * cores));
  if (count > 0) at::set_num_threads(static_cast<int>(count));
}

}  // namespace lapse
