#include "lapse/ops/dense/few_rows.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/add.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/to.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

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

/// n numbers rounded, as products with weights in bfloat16 read them (multiply_lines); none if nothing would read them.
c10::SmallVector<at::BFloat16, 1024> rounded(const float* x, int64_t n, c10::ArrayRef<FewRowsProduct> products) {
  c10::SmallVector<at::BFloat16, 1024> y;
  if (!reads_narrow() || std::none_of(products.begin(), products.end(),
                                      [](const auto& p) { return p.weight.scalar_type() == at::kBFloat16; }))
    return y;
  y.resize_for_overwrite(n);
  to_bfloat16(x, reinterpret_cast<uint16_t*>(y.data()), n);
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
  const auto narrow = rounded(x, m * k, products);
  const int64_t lines = std::max<int64_t>(1, kPiece / std::max<int64_t>(m * k, 1));
  // What each task needs, looked up once: in another thread each field of a tensor would be a cache miss.
  struct Part {
    const char* weight;
    bool bfloat16;
    int64_t n, end;  ///< lines of the weight; tasks of this part and of those before
    float* y;
    const float* bias;
  };
  c10::SmallVector<Part, 4> parts;
  int64_t tasks = 0;
  for (const auto& p : products) {
    const int64_t n = p.weight.size(0);
    tasks += (n + lines - 1) / lines;
    parts.push_back({static_cast<const char*>(p.weight.const_data_ptr()), p.weight.scalar_type() == at::kBFloat16, n,
                     tasks, p.y, p.bias});
  }
  const auto find = [&](int64_t task) {  // its part, and the first of its lines there
    size_t i = 0;
    while (task >= parts[i].end) ++i;
    return std::pair<const Part&, int64_t>(parts[i], (task - (i == 0 ? 0 : parts[i - 1].end)) * lines);
  };
  const auto multiply = [&](int64_t task) {
    const auto [p, first] = find(task);
    const int64_t n = p.n, count = std::min(lines, n - first);
    if (p.bfloat16)
      multiply_lines(x, reinterpret_cast<const uint16_t*>(narrow.data()),
                     reinterpret_cast<const uint16_t*>(p.weight) + first * k, m, count, k, p.y + first, n);
    else
      multiply_lines(x, reinterpret_cast<const float*>(p.weight) + first * k, m, count, k, p.y + first, n);
    if (p.bias != nullptr || relu)
      add_bias(p.y + first, n, m, count, p.bias == nullptr ? nullptr : p.bias + first, relu);
  };
  for_each_task_again(tasks, multiply, [&](int64_t task, int64_t count) {
    const auto [p, first] = find(task);
    const int64_t line = k * (p.bfloat16 ? 2 : 4), end = std::min(first + count * lines, p.n);
    return Region{p.weight + first * line, (end - first) * line};
  });
}

at::Tensor empty_rows(at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor y =
      at::detail::empty_generic(sizes, small_blocks(), c10::DispatchKeySet(c10::DispatchKey::CPU), type, std::nullopt);
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
    at::native::fill_empty_deterministic_(y);  // NaN, as at::empty then
  return y;
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
