// What a model computes on.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace lapse {

/// "cpu", and where libtorch has them "cuda:0", "cuda:1", ... and "cuda": the first, or under torchrun each process its
/// own as far as they go (LOCAL_RANK). Error, naming what there is, for another one.
at::Device find_device(const std::string& name);

/// Bytes that are free where `device` keeps its tensors, for one of so many processes of this machine.
int64_t free_memory(at::Device device, int64_t processes = 1);
/// The same with what the process has there already, before its model is on a GPU.
int64_t usable_memory(at::Device device, int64_t processes = 1);

/// The most bytes that tensors had on a GPU so far; 0 on the CPU, or where libtorch does not count them.
int64_t peak_memory_on(at::Device device);

}  // namespace lapse
