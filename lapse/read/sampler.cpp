#include "lapse/read/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

/// Indices by descending value, equal ones by ascending index, one by one: few of many are asked for.
class Descending {
 public:
  explicit Descending(const std::vector<double>& values) : values_(values), heap_(values.size()) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::ranges::make_heap(heap_, Later{values_});
  }

  int64_t next() {
    std::ranges::pop_heap(heap_, Later{values_});
    const int64_t index = heap_.back();
    heap_.pop_back();
    return index;
  }

 private:
  struct Later {
    const std::vector<double>& values;
    bool operator()(int64_t a, int64_t b) const { return values[a] != values[b] ? values[a] < values[b] : a > b; }
  };
  const std::vector<double>& values_;
  std::vector<int64_t> heap_;
};

/// exp((x - max x) / temperature): the probabilities, but for a factor.
std::vector<double> weights_of(const double* x, int64_t n, double temperature) {
  std::vector<double> weights(x, x + n);
  const double top = *std::ranges::max_element(weights);
  for (double& w : weights) w = std::exp((w - top) / temperature);
  return weights;
}

/// The likeliest tokens that options.top_k and top_p allow, by descending weight.
std::vector<int64_t> allowed(const std::vector<double>& weights, const SamplingOptions& options) {
  const int64_t n = std::ssize(weights), most = options.top_k > 0 ? std::min(options.top_k, n) : n;
  Descending descending(weights);
  std::vector<int64_t> order(most);
  double whole = 0, mass = 0;
  for (int64_t& id : order) id = descending.next(), whole += weights[id];
  size_t count = 0;
  while (count < order.size() && (count == 0 || mass < options.top_p * whole)) mass += weights[order[count++]];
  order.resize(count);
  return order;
}

/// One of `count` indices, of which id_of(i) is asked for in order, by weights that add up to `mass`.
template <class IdOf>
int64_t draw(const std::vector<double>& weights, double mass, int64_t count, Random& random, const IdOf& id_of) {
  double left = random.uniform() * mass;
  for (int64_t i = 0;; ++i) {
    const int64_t id = id_of(i);
    left -= weights[id];
    if (left < 0 || i + 1 == count) return id;
  }
}

}  // namespace

int64_t sample(const at::Tensor& given, const SamplingOptions& options, Random& random) {
  const at::Tensor logits = given.to(at::kCPU, at::kDouble).contiguous();
  const auto* x = logits.const_data_ptr<double>();
  const int64_t n = logits.numel();
  const auto& [temperature, top_k, top_p] = options;
  if (!(temperature >= 0 && top_k >= 0 && top_p >= 0 && top_p <= 1))  // false for NaN
    fail(fmt::format("sampling needs temperature >= 0, top_k >= 0 and 0 <= top_p <= 1, not {}, {} and {}", temperature,
                     top_k, top_p));
  if (n == 0) fail("there are no logits to draw a token from");
  if (options.temperature == 0) {
    if (std::all_of(x, x + n, [](double one) { return !std::isnan(one) && one < INFINITY; }))
      if (const int64_t likeliest = std::max_element(x, x + n) - x; std::isfinite(x[likeliest])) return likeliest;
    fail("the model gives no finite probabilities: its weights are damaged");
  }
  const auto weights = weights_of(x, n, options.temperature);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!std::isfinite(sum)) fail("the model gives no finite probabilities: its weights are damaged");

  if (options.top_k == 0 && options.top_p >= 1) {
    Descending descending(weights);
    return draw(weights, sum, n, random, [&](int64_t) { return descending.next(); });
  }
  const auto ids = allowed(weights, options);
  double mass = 0;
  for (const int64_t id : ids) mass += weights[id];
  return draw(weights, mass, std::ssize(ids), random, [&](int64_t i) { return ids[i]; });
}

}  // namespace lapse
