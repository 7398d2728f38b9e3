// Memory of small tensors that come and go with every token.
#pragma once

#include <c10/core/Allocator.h>

namespace lapse {

/// Memory on the CPU, 64-byte aligned. Blocks of up to 256 KiB are kept for the next tensor of their size when they are
/// released: the system's aligned allocation takes as long as the small steps of a token that it is for. A thread keeps
/// what it releases, of each of 13 sizes at most 64 blocks and 1 MiB.
c10::Allocator* small_blocks();

}  // namespace lapse
