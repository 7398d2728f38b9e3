#include "lapse/memory/appended.h"

#include <algorithm>
#include <cstring>

#include "lapse/ops/aten.h"
#include "lapse/ops/own_gradient.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kFewBytes = 1 << 16;  // are copied before other threads have begun

/// Calls f(sample) for each sample, of which `bytes` are moved in all.
template <class F>
void for_each_sample(int64_t samples, int64_t bytes, const F& f) {
  if (bytes >= kFewBytes) return for_each_task(samples, f);
  for (int64_t b = 0; b < samples; ++b) f(b);
}

/// The same by libtorch's operators. unbind and one cat: their backward is one stack and views, where 2B slices would
/// each cost a zero-filled gradient.
Tensor joined(const Tensor& old, const std::vector<int64_t>& offsets, const Tensor& block) {
  const auto blocks = block.unbind(0);
  std::vector<Tensor> pieces;
  pieces.reserve(2 * blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (offsets[b + 1] > offsets[b]) pieces.push_back(old.narrow(0, offsets[b], offsets[b + 1] - offsets[b]));
    pieces.push_back(blocks[b]);
  }
  return lapse::cat(pieces);
}

Tensor copied(const Tensor& old, const std::vector<int64_t>& offsets, const Tensor& block) {
  const int64_t B = block.size(0), K = block.size(1);
  auto shape = old.sizes().vec();
  shape[0] = offsets.back() + B * K;
  Tensor all = at::empty(shape, block.options());
  const auto each = static_cast<int64_t>(all.nbytes()) / shape[0];
  const auto *from = static_cast<const char*>(old.const_data_ptr()),
             *more = static_cast<const char*>(block.const_data_ptr());
  auto* to = static_cast<char*>(all.mutable_data_ptr());
  for_each_sample(B, shape[0] * each, [&](int64_t b) {
    // copy_n: there may be no old rows, and then no memory of them
    std::copy_n(from + offsets[b] * each, (offsets[b + 1] - offsets[b]) * each, to + (offsets[b] + b * K) * each);
    std::memcpy(to + (offsets[b + 1] + b * K) * each, more + b * K * each, K * each);
  });
  return all;
}

Tensor gradient(const Tensor& dall, const std::vector<int64_t>& offsets, at::IntArrayRef shape) {
  Tensor dblock = at::empty(shape, dall.options());
  const int64_t B = shape[0], K = shape[1], each = static_cast<int64_t>(dall.nbytes()) / dall.size(0);
  const auto* from = static_cast<const char*>(dall.const_data_ptr());
  auto* to = static_cast<char*>(dblock.mutable_data_ptr());
  for_each_sample(B, B * K * each,
                  [&](int64_t b) { std::memcpy(to + b * K * each, from + (offsets[b + 1] + b * K) * each, K * each); });
  return dblock;
}

}  // namespace

Tensor appended(const Tensor& old, const std::vector<int64_t>& offsets, const Tensor& block) {
  if (!block.device().is_cpu() || old.requires_grad() || block.numel() == 0) return joined(old, offsets, block);
  const Tensor from = old.contiguous(), more = block.contiguous();
  const Tensor all = copied(from, offsets, more);
  if (!at::GradMode::is_enabled() || !block.requires_grad()) return all;
  return with_gradient({more}, all, {"appended", {}, [offsets, shape = more.sizes().vec()](const Received& r) {
                                       return std::vector{gradient(r.gradients[0].contiguous(), offsets, shape)};
                                     }});
}

}  // namespace lapse
