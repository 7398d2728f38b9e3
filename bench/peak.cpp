#include "bench/peak.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "bench/report.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/linear.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Tile {
  int64_t m, n, k;
};
constexpr Tile kTiles[] = {{64, 512, 64}, {64, 64, 512}};  // [queries, rows] = q k^T, [queries, D] = weights v

/// Best FLOP/s of `work`, which repeats a product of `flops` FLOPs `count` times.
double best(double flops, bool quick, const std::function<void(int64_t count)>& work) {
  work(1);  // oneDNN compiles its kernel at the first call
  const double target = quick ? 1e-3 : 25e-3;
  const int repeats = quick ? 1 : 7;
  int64_t count = 1;
  double time = seconds([&] { work(count); });
  while (time < target) {
    count = std::max(2 * count, static_cast<int64_t>(std::ceil(count * 1.1 * target / std::max(time, 1e-6))));
    time = seconds([&] { work(count); });
  }
  for (int i = 1; i < repeats; ++i) time = std::min(time, seconds([&] { work(count); }));
  return flops * static_cast<double>(count) / time;
}

Peak square(int64_t n, at::ScalarType type, bool quick) {
  const Tensor a = at::randn({n, n}).to(type), b = at::randn({n, n}).to(type);
  Tensor c = at::empty({n, n}, a.options());
  const double flops = 2.0 * n * n * n;
  return {best(flops, quick,
               [&](int64_t count) {
                 for (int64_t i = 0; i < count; ++i) at::mm_out(c, a, b);
               }),
          fmt::format("at::mm {}", n)};
}

template <class T>
void multiply(const Tile& t, const Tensor& a, const Tensor& b, Tensor& c) {
  at::native::cpublas::brgemm(t.m, t.n, t.k, t.k, t.n, t.n, false, a.const_data_ptr<T>(), b.const_data_ptr<T>(),
                              c.mutable_data_ptr<float>(), std::is_same_v<T, at::BFloat16>);
}

/// Every core multiplies tiles of its own, `count` of them. For bfloat16 B is taken as pair-interleaved, [K/2, N, 2]:
/// random numbers are as good in any order.
template <class T>
Peak tiles(const Tile& t, at::ScalarType type, bool quick) {
  const int64_t threads = at::get_num_threads();
  std::vector<Tensor> a, b, c;
  for (int64_t i = 0; i < threads; ++i) {
    a.push_back(at::randn({t.m, t.k}).to(type)), b.push_back(at::randn({t.k, t.n}).to(type));
    c.push_back(at::empty({t.m, t.n}));
  }
  const double flops = 2.0 * t.m * t.n * t.k * threads;
  const double reached = best(flops, quick, [&](int64_t count) {
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t thread = begin; thread < end; ++thread)
        for (int64_t i = 0; i < count; ++i) multiply<T>(t, a[thread], b[thread], c[thread]);
      at::native::cpublas::brgemm_release(std::is_same_v<T, at::BFloat16>);
    });
  });
  return {reached, fmt::format("brgemm {}x{}x{}", t.m, t.n, t.k)};
}

/// Nothing where the processor lacks these products.
std::optional<Peak> tiles_if_any(const Tile& t, at::ScalarType type, bool quick) {
  if (type == at::kBFloat16 && !has_bfloat16_products()) return {};
  try {
    return type == at::kFloat ? tiles<float>(t, type, quick) : tiles<at::BFloat16>(t, type, quick);
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

Peak gemm_peak(at::ScalarType type, bool quick) {
  std::vector<Peak> all;
  for (const int64_t n : quick ? std::vector<int64_t>{128} : std::vector<int64_t>{1024, 2048})
    all.push_back(square(n, type, quick));
  for (const Tile& tile : kTiles)
    if (auto peak = tiles_if_any(tile, type, quick)) all.push_back(*peak);
  return *std::max_element(all.begin(), all.end(), [](const Peak& x, const Peak& y) { return x.flops < y.flops; });
}

bool multiplies(at::ScalarType type) {
  const bool has = type != at::kBFloat16 || has_bfloat16_products();
  static bool told = false;
  if (!has && !std::exchange(told, true)) note("this processor does not multiply bfloat16: nothing is measured in it");
  return has;
}

void Peaks::measure(at::ScalarType type) {
  const Peak peak = gemm_peak(type, quick_);
  if (peak.flops > peaks_[type].flops) peaks_[type] = peak;
}

void Peaks::measure_again() {
  for (const auto& [type, peak] : std::map(peaks_)) measure(type);
}

Json Peaks::json() const {
  Json json = Json::object();
  for (const auto& [type, peak] : peaks_) json[type_name(type)] = {{"gflops", peak.flops * 1e-9}, {"by", peak.by}};
  return json;
}

std::string Peaks::text() const {
  std::string text;
  for (const auto& [type, peak] : peaks_)
    text += fmt::format("peak {:.0f} GFLOP/s {} ({})\n", peak.flops * 1e-9, type_name(type), peak.by);
  return text;
}

std::string type_name(at::ScalarType type) { return type == at::kFloat ? "float32" : "bfloat16"; }

}  // namespace lapse::bench
