// What a model computes on.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace lapse {

/// "cpu", and where libtorch has them "cuda:0", "cuda:1", ... and "cuda": the first, or under torchrun each process its
/// own as far as they go (LOCAL_RANK). Error, naming what there is, for another one.
at::Device find_device(const std::string& name);

}  // namespace lapse
