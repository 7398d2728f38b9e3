#include "lapse/ops/dense/few_rows.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/to.h>

#include <algorithm>

#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/parallel/small_blocks.h"

namespace lapse {

namespace {

template <class From, class To>
at::Tensor converted(const at::Tensor& x) {
  at::Tensor y = empty_rows(x.sizes(), c10::CppTypeToScalarType<To>::value);
  const From* from = x.const_data_ptr<From>();
  To* to = y.mutable_data_ptr<To>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = To(from[i]);
  return y;
}

}  // namespace

void multiply_few_rows(const float* x, int64_t m, int64_t k, c10::ArrayRef<FewRowsProduct> products, bool relu) {
  constexpr int64_t kPiece = 1 << 14;  // multiplications of a task
  for (const auto& p : products)
    TORCH_CHECK(p.weight.dim() == 2 && p.weight.size(1) == k && p.weight.is_contiguous() &&
                    (p.weight.scalar_type() == at::kFloat || p.weight.scalar_type() == at::kBFloat16),
                "a few rows: the weight must be float32 or bfloat16 [out, ", k, "], contiguous, got ",
                p.weight.scalar_type(), " ", p.weight.sizes());
  const int64_t lines = std::max<int64_t>(1, kPiece / std::max<int64_t>(m * k, 1));
  const auto tasks_of = [&](const FewRowsProduct& p) { return (p.weight.size(0) + lines - 1) / lines; };
  int64_t tasks = 0;
  for (const auto& p : products) tasks += tasks_of(p);
  const auto find = [&](int64_t& i) {  // the product that task i belongs to; i becomes its number there
    const auto* p = products.begin();
    for (int64_t own = tasks_of(*p); i >= own; own = tasks_of(*++p)) i -= own;
    return p;
  };
  const auto multiply = [&](int64_t i) {
    const auto* p = find(i);
    const int64_t n = p->weight.size(0), first = i * lines, count = std::min(lines, n - first);
    const void* w = p->weight.const_data_ptr();
    if (p->weight.scalar_type() == at::kBFloat16)
      multiply_lines(x, static_cast<const uint16_t*>(w) + first * k, m, count, k, p->y + first, n);
    else
      multiply_lines(x, static_cast<const float*>(w) + first * k, m, count, k, p->y + first, n);
    if (p->bias != nullptr || relu)
      add_bias(p->y + first, n, m, count, p->bias == nullptr ? nullptr : p->bias + first, relu);
  };
  for_each_task_again(tasks, multiply, [&](int64_t i, int64_t count) {
    const auto* p = find(i);
    const auto line = k * static_cast<int64_t>(p->weight.element_size());
    const int64_t first = i * lines, end = std::min((i + count) * lines, p->weight.size(0));
    return Region{static_cast<const char*>(p->weight.const_data_ptr()) + first * line, (end - first) * line};
  });
}

at::Tensor empty_rows(at::IntArrayRef sizes, at::ScalarType type) {
  return at::detail::empty_generic(sizes, small_blocks(), c10::DispatchKeySet(c10::DispatchKey::CPU), type,
                                   std::nullopt);
}

at::Tensor reshaped(const at::Tensor& x, at::IntArrayRef sizes) {
  if (at::GradMode::is_enabled() || !x.is_contiguous() || c10::multiply_integers(sizes) != x.numel())
    return at::reshape(x, sizes);
  at::Tensor y = x.variable_data();
  y.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return y;
}

at::Tensor as(const at::Tensor& x, at::ScalarType type) {
  constexpr int64_t kFewNumbers = 1 << 14;
  const auto from = x.scalar_type();
  if (from == type) return x;
  if (!at::GradMode::is_enabled() && x.is_cpu() && x.is_contiguous() && x.numel() <= kFewNumbers) {
    if (from == at::kFloat && type == at::kBFloat16) return converted<float, at::BFloat16>(x);
    if (from == at::kBFloat16 && type == at::kFloat) return converted<at::BFloat16, float>(x);
  }
  return x.to(type);
}

at::Tensor shifted(const at::Tensor& x, int64_t by) {
  if (!x.is_cpu() || !x.is_contiguous() || x.scalar_type() != at::kLong || x.numel() > kSomeRows) return at::add(x, by);
  at::Tensor y = empty_rows(x.sizes(), at::kLong);
  const int64_t* from = x.const_data_ptr<int64_t>();
  std::transform(from, from + x.numel(), y.mutable_data_ptr<int64_t>(), [=](int64_t one) { return one + by; });
  return y;
}

bool few_rows(const at::Tensor& x, int64_t most) {
  return x.dim() > 0 && x.numel() > 0 && x.numel() <= most * x.size(-1) && x.scalar_type() == at::kFloat &&
         x.device().is_cpu() && x.is_contiguous() && !at::GradMode::is_enabled();
}

}  // namespace lapse
