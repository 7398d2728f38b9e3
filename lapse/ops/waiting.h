// What a GPU does runs behind the host, until the host waits for it. These are the ways to wait seldom.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace lapse {

/// x on `device`: x itself if it is there. A tensor of the CPU goes there without waiting for what the device still
/// does, to a GPU by way of pinned memory; x, unless it is in such memory itself, may be written or released at once.
at::Tensor sent(const at::Tensor& x, at::Device device);

/// The places where mask [n] is true, of which there are `count`: [count] int64, ascending. at::nonzero would wait, to
/// count them.
at::Tensor places_of(const at::Tensor& mask, int64_t count);

/// Of values 0 ... n - 1 in x [m] int64, for each value the places that have it; the host waits once for all of them.
std::vector<at::Tensor> places_of_each(const at::Tensor& x, int64_t n);

/// How often 0 ... n - 1 is in x [m] int64: [n] int64. at::bincount would wait, to look for larger numbers; c10::Error
/// for those, on the CPU.
at::Tensor counts_of(const at::Tensor& x, int64_t n);

}  // namespace lapse
