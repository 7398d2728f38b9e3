// A device beside the CPU, for machines that have no other: what a GPU would refuse is an error here too.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace lapse {

/// libtorch's PrivateUse1, over the host's memory; every operator that has no kernel of its own for it runs on the CPU.
/// An operator that gets tensors of both devices is a c10::Error, unless the CPU's are scalars (0-dim); so is one that
/// draws by a generator of the CPU. A pointer to its memory, read on the host, is a segmentation fault.
/// It has graphs (lapse/ops/graph.h): a replay calls the recorded operators again, on the same memory. While one is
/// recorded nothing that was there before changes, what is made holds NaN, and waiting is a c10::Error, as on a GPU.
at::Device second_device();

/// How often the host would have waited for a GPU: numbers read, tensors copied to the CPU, and to the device unless
/// non_blocking, and operators whose results have shapes that follow from data (`nonzero`). Without what the references
/// of the attention operators read, for which a GPU has kernels that read nothing.
int64_t second_device_reads();

/// In the next graph's recording the call after so many is a c10::Error, as if memory were short; none if there are
/// fewer.
void fail_next_recording_of_second_device(int64_t calls);

}  // namespace lapse
