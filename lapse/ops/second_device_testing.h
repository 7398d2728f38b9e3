// A device beside the CPU, for machines that have no other: what a GPU would refuse is an error here too.
#pragma once

#include <c10/core/Device.h>

namespace lapse {

/// libtorch's PrivateUse1, over the host's memory; every operator that has no kernel of its own for it runs on the CPU.
/// An operator that gets tensors of both devices is a c10::Error, unless the CPU's are scalars (0-dim); so is one that
/// draws by a generator of the CPU. A pointer to its memory, read on the host, is a segmentation fault.
at::Device second_device();

}  // namespace lapse
