// What a model computes on.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace lapse {

/// "cpu", and where libtorch has them "cuda" (the first), "cuda:0", "cuda:1", ... Error, naming what there is, for
/// another one.
at::Device find_device(const std::string& name);

}  // namespace lapse
