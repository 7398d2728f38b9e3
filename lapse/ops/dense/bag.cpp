#include "lapse/ops/dense/bag.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/own_gradient.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kPiece = 256;  // bags of a task

/// bags [n, most] and what they choose from.
struct Bags {
  const int64_t* numbers;
  int64_t n, most, lines, width;

  /// Calls f(number) for what bag i names.
  template <class F>
  void of(int64_t i, const F& f) const {
    for (int64_t j = 0; j < most; ++j)
      if (const int64_t number = numbers[i * most + j]; number >= 0) f(number);
  }
};

Bags bags_of(const Tensor& bags, int64_t lines, int64_t width) {
  const int64_t most = bags.size(-1);
  return {bags.const_data_ptr<int64_t>(), most == 0 ? 0 : bags.numel() / most, most, lines, width};
}

Tensor sums(const Tensor& weight, const Tensor& bags) {
  const Bags b = bags_of(bags, weight.size(0), weight.size(1));
  auto shape = bags.sizes().vec();
  shape.back() = b.width;
  Tensor y = empty_rows(shape);
  const auto* w = weight.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  for_each_task((b.n + kPiece - 1) / kPiece, [&](int64_t task) {
    for (int64_t i = task * kPiece; i < std::min(b.n, (task + 1) * kPiece); ++i) {
      std::fill_n(to + i * b.width, b.width, 0.f);
      b.of(i, [&](int64_t number) {
        TORCH_CHECK(number < b.lines, "bag_sums: a bag names line ", number, " of ", b.lines);
        add_to(to + i * b.width, w + number * b.width, b.width);
      });
    }
  });
  return y;
}

/// Groups of bags have sums of their own, joined in order: no result depends on the number of threads.
Tensor gradient(const Tensor& dy, const Tensor& bags, int64_t lines) {
  constexpr int64_t kMostGroups = 16, kMostElements = 1 << 20;
  const Bags b = bags_of(bags, lines, dy.size(-1));
  const int64_t each = b.lines * b.width, groups = std::clamp<int64_t>(kMostElements / each, 1, kMostGroups);
  const Tensor all = empty_rows({groups, b.lines, b.width});
  const auto* from = dy.const_data_ptr<float>();
  auto* to = all.mutable_data_ptr<float>();
  for_each_task(groups, [&](int64_t g) {
    std::fill_n(to + g * each, each, 0.f);
    for (int64_t i = b.n * g / groups; i < b.n * (g + 1) / groups; ++i)
      b.of(i, [&](int64_t number) { add_to(to + g * each + number * b.width, from + i * b.width, b.width); });
  });
  Tensor dweight = empty_rows({b.lines, b.width});
  for_each_task(b.lines, [&](int64_t line) {
    auto* sum = dweight.mutable_data_ptr<float>() + line * b.width;
    std::copy_n(to + line * b.width, b.width, sum);
    for (int64_t g = 1; g < groups; ++g) add_to(sum, to + g * each + line * b.width, b.width);
  });
  return dweight;
}

}  // namespace

Tensor bag_sums(const Tensor& weight, const Tensor& bags) {
  TORCH_CHECK(weight.dim() == 2 && bags.dim() >= 1 && bags.scalar_type() == at::kLong,
              "bag_sums: needs a weight [lines, width] and bags of int64, got ", weight.sizes(), " and ",
              bags.scalar_type(), " ", bags.sizes());
  if (weight.scalar_type() == at::kFloat && weight.device().is_cpu() && weight.numel() > 0 && bags.numel() > 0) {
    const Tensor w = weight.contiguous(), b = bags.contiguous();
    const Tensor y = sums(w, b);
    if (!at::GradMode::is_enabled()) return y;
    return with_gradient({w}, y, {"bag_sums", {b}, [lines = w.size(0)](const Received& r) {
                                    return std::vector{gradient(r.gradients[0].contiguous(), r.saved[0], lines)};
                                  }});
  }
  return at::where((bags >= 0).unsqueeze(-1), at::embedding(weight, bags.clamp_min(0)), 0).sum(-2);
}

}  // namespace lapse
