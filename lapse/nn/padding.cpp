#include "lapse/nn/padding.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lapse/ops/aten.h"
#include "lapse/ops/own_gradient.h"
#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kFewBytes = 1 << 16;  // are copied before other threads have begun
// Less than this share of a block is little padding. On a Xeon, with 2 layers of width 128 and 256, updates take the
// same time either way at 10 to 15 %.
constexpr int64_t kLittle = 8;

}  // namespace

/// m of n rows, and how to copy them.
struct ChosenRows::Chosen {
  struct Run {
    int64_t begin, end, number;  // of the n rows; of the first among the m
  };
  std::vector<Run> runs;
  int64_t m = 0, n = 0;
  Tensor places;  // [m] int64, on a GPU: the rows

  void find_places(at::Device device) {
    const Tensor all = at::empty({m}, at::kLong);
    auto* row = all.mutable_data_ptr<int64_t>();
    for (const auto& [begin, end, number] : runs) std::iota(row + number, row + number + end - begin, begin);
    places = sent(all, device);
  }

  Tensor of(const Tensor& x) const {
    if (places.defined()) return x.index_select(0, places);
    return copied(x, m, [](const Run& run, const char* from, char* to, int64_t row, const Run*) {
      std::memcpy(to + run.number * row, from + run.begin * row, (run.end - run.begin) * row);
    });
  }

  Tensor among_zeros(const Tensor& x) const {
    if (places.defined()) {
      auto shape = x.sizes().vec();
      shape[0] = n;
      return at::zeros(shape, x.options()).index_copy_(0, places, x);
    }
    return copied(x, n, [this](const Run& run, const char* from, char* to, int64_t row, const Run* next) {
      const int64_t zeros_end = next ? next->begin : n, zeros_begin = run.number == 0 ? 0 : run.begin;
      std::memset(to + zeros_begin * row, 0, (run.begin - zeros_begin) * row);
      std::memcpy(to + run.begin * row, from + run.number * row, (run.end - run.begin) * row);
      std::memset(to + run.end * row, 0, (zeros_end - run.end) * row);
    });
  }

 private:
  /// `copy` of each run, from x to [count, ...].
  template <class F>
  Tensor copied(const Tensor& given, int64_t count, const F& copy) const {
    const Tensor x = given.contiguous();
    auto shape = x.sizes().vec();
    shape[0] = count;
    if (x.numel() == 0) return at::zeros(shape, x.options());
    const Tensor y = at::empty(shape, x.options());
    const auto row = static_cast<int64_t>(x.nbytes()) / x.size(0), last = std::ssize(runs) - 1;
    const auto* from = static_cast<const char*>(x.const_data_ptr());
    auto* to = static_cast<char*>(y.mutable_data_ptr());
    const auto one = [&](int64_t r) { copy(runs[r], from, to, row, r < last ? &runs[r + 1] : nullptr); };
    if (count * row >= kFewBytes) return for_each_task(last + 1, one), y;
    for (int64_t r = 0; r <= last; ++r) one(r);
    return y;
  }
};

ChosenRows::ChosenRows(const std::vector<std::pair<int64_t, int64_t>>& runs, int64_t n, at::Device device) {
  auto chosen = std::make_shared<Chosen>();
  chosen->n = n;
  for (const auto& [begin, end] : runs) {
    if (begin == end) continue;
    chosen->runs.push_back({begin, end, chosen->m});
    chosen->m += end - begin;
  }
  if (!device.is_cpu()) chosen->find_places(device);
  chosen_ = std::move(chosen);
}

Tensor ChosenRows::of(const Tensor& x) const {
  if (!chosen_) return x;
  TORCH_CHECK(x.size(0) == chosen_->n, "there are ", x.size(0), " rows, not ", chosen_->n);
  const Tensor y = below_autograd([&] { return chosen_->of(x); });
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return y;
  return with_gradient({x}, y, {"rows", {}, [chosen = chosen_](const Received& r) {
                                  return std::vector{chosen->among_zeros(r.gradients[0])};
                                }});
}

Tensor ChosenRows::among_zeros(const Tensor& x) const {
  if (!chosen_) return x;
  TORCH_CHECK(x.size(0) == chosen_->m, "there are ", x.size(0), " rows, not ", chosen_->m);
  const Tensor y = below_autograd([&] { return chosen_->among_zeros(x); });
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return y;
  return with_gradient(
      {x}, y, {"rows", {}, [chosen = chosen_](const Received& r) { return std::vector{chosen->of(r.gradients[0])}; }});
}

Tensor ChosenRows::numbers(const Tensor& rows) const {
  if (!chosen_ || !rows.defined()) return rows;
  Tensor all = at::zeros({chosen_->n}, at::kLong);
  auto* number = all.mutable_data_ptr<int64_t>();
  for (const auto& run : chosen_->runs) std::iota(number + run.begin, number + run.end, run.number);
  return sent(all, rows.device()).index_select(0, rows);
}

Padding::Padding(const Tensor& lengths, int64_t K, at::Device device) : K_(K) {
  if (!lengths.defined() || K == 1) return;
  const Tensor host = lengths.to(at::kCPU).contiguous();
  const auto* of = host.const_data_ptr<int64_t>();
  const int64_t B = host.numel(), tokens = std::reduce(of, of + B);
  TORCH_CHECK(std::all_of(of, of + B, [&](int64_t n) { return n >= 0 && n <= K; }), "a block of ", K,
              " tokens a sample cannot have samples of the lengths ", host);
  if (tokens == 0 || (B * K - tokens) * kLittle < B * K) return;
  lengths_.assign(of, of + B);
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t b = 0; b < B; ++b) runs.emplace_back(b * K, b * K + lengths_[b]);
  tokens_ = ChosenRows(runs, B * K, device);
}

Tensor Padding::removed(const Tensor& x) const { return *this ? tokens_.of(x.flatten(0, 1)).unsqueeze(0) : x; }

Tensor Padding::restored(const Tensor& x) const {
  return *this ? tokens_.among_zeros(x.squeeze(0)).unflatten(0, {std::ssize(lengths_), K_}) : x;
}

Tensor Padding::places(const Tensor& positions) const { return tokens_.numbers(positions); }

ChosenRows Padding::rows(const MemoryTable& table) const {
  if (!*this) return {};
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t b = 0; b < table.samples(); ++b) runs.emplace_back(table.first_row(b), table.first_row(b + 1) - of(b));
  return {runs, table.rows(), table.time().device()};
}

}  // namespace lapse
