// The number of threads that a test runs on.
#pragma once

#include <ATen/Parallel.h>

namespace lapse {

/// The number of threads, until the end of the scope. Many small cases run faster on one: threads that wait for each
/// other on a busy machine cost more than the work.
class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }
  Threads(const Threads&) = delete;
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_;
};

}  // namespace lapse
