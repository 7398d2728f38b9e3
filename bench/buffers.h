// Tensors' memory kept for reuse between repeats, so that a measurement sees no fresh pages.
#pragma once

#include <c10/core/Allocator.h>

namespace lapse::bench {

/// While it lives, memory that CPU tensors release serves the next tensors of the same size. One at a time.
class ReusedBuffers {
 public:
  ReusedBuffers();
  ReusedBuffers(const ReusedBuffers&) = delete;
  ~ReusedBuffers();

 private:
  c10::Allocator* before_;
};

}  // namespace lapse::bench
