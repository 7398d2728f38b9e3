// What the tests of ramp_attention share: random ragged inputs, and its formulas as plain loops over doubles.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lapse/core/random.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {

struct RampCase {
  AttentionInputs inputs;
  RampOptions options;
  std::string text;  ///< for messages
};

inline std::vector<double> doubles(const at::Tensor& x) {
  const at::Tensor y = x.detach().to(at::kDouble).contiguous();
  return {y.const_data_ptr<double>(), y.const_data_ptr<double>() + y.numel()};
}

inline std::vector<int64_t> integers(const at::Tensor& x) {
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<int64_t>(), y.const_data_ptr<int64_t>() + y.numel()};
}

/// The largest difference, relative to the largest expected absolute value (to 1 where that is smaller: zeros among
/// zeros); infinite for NaN or another size.
inline double error_between(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double largest = 1, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;  // infinities too
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(got[i] - expected[i]));
    if (!std::isfinite(got[i] - expected[i])) return INFINITY;
  }
  return worst / largest;
}
inline double error_between(const at::Tensor& got, const at::Tensor& expected) {
  return got.sizes() == expected.sizes() ? error_between(doubles(got), doubles(expected)) : INFINITY;
}

inline at::Tensor random_normal(at::IntArrayRef shape, Random& random) {
  at::Tensor x = at::full(shape, 0., at::kDouble);
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<double>()[i] = random.normal();
  return x;
}

template <class T>
T pick(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.below(values.size())];
}

/// A span in 0 ... longest that no integer age puts nearer than `clear` to a corner of the ramp (m = 0 or m = 1).
inline double clear_span(Random& random, double longest, double ramp, double clear) {
  for (;;) {
    const double span = random.uniform() * longest;
    auto near = [&](double x) { return std::abs(x - std::round(x)) < clear * ramp; };
    if (!near(span) && !near(span + ramp)) return span;
  }
}

inline at::Tensor clear_spans(int64_t n, Random& random, double longest, double ramp, double clear) {
  at::Tensor spans = at::full({n}, 0., at::kDouble);
  for (int64_t i = 0; i < n; ++i) spans.data_ptr<double>()[i] = clear_span(random, longest, ramp, clear);
  return spans;
}

/// Times of one sample's rows, newest last: without gaps or with random ones, ending at the last query or some steps
/// before it.
inline void add_times(std::vector<int64_t>& times, int64_t rows, int64_t last_query, int64_t K, Random& random) {
  const uint64_t gap = pick<uint64_t>(random, {1, 1, 4});
  int64_t time = last_query - static_cast<int64_t>(random.below(2) * random.below(K + 3));
  const size_t first = times.size();
  for (int64_t i = 0; i < rows; ++i, time -= 1 + static_cast<int64_t>(random.below(gap))) times.push_back(time);
  std::reverse(times.begin() + first, times.end());
}

/// `until` of rows at random: never, or within the block. In half of the samples some rows at the front are seen by no
/// query and have any time.
inline void draw_until(AttentionInputs& x, Random& random) {
  const auto offsets = integers(x.offsets), start = integers(x.start);
  const int64_t K = x.q.size(1);
  x.time = x.time.clone(), x.until = at::full(x.time.sizes(), kNoLimit, at::kLong);
  auto *time = x.time.data_ptr<int64_t>(), *until = x.until->data_ptr<int64_t>();
  for (size_t b = 0; b < start.size(); ++b) {
    const int64_t rows = offsets[b + 1] - offsets[b];
    const int64_t front = random.below(2) ? static_cast<int64_t>(random.below(rows + 1)) : 0;
    for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
      if (i < offsets[b] + front) {
        time[i] = start[b] + static_cast<int64_t>(random.below(K + 5)) - 5;
        until[i] = start[b] - static_cast<int64_t>(random.below(3));
      } else if (random.below(3) == 0) {
        until[i] = start[b] + static_cast<int64_t>(random.below(K + 4)) - 2;
      }
    }
  }
}

/// What both operators take beside, each at times: fewer heads of k than of q, a scale, and a bias by age.
template <class Options>
void draw_extras(AttentionInputs& x, Options& o, Random& random) {
  const int64_t H = x.q.size(2);
  if (const auto G = pick<int64_t>(random, {1, 2, 3}); random.below(3) == 0 && H % G == 0)
    x.k = x.k.narrow(1, 0, G).contiguous(), x.v = x.v.narrow(1, 0, G).contiguous();
  if (random.below(3) == 0) o.scale = pick(random, {0.3, 0.7, 1.5}) / std::sqrt(static_cast<double>(x.q.size(3)));
  if (random.below(3) > 0) return;
  o.age_bias = random_normal({H, pick<int64_t>(random, {1, 2, 9, 70})}, random).to(x.q.scalar_type());
  o.bias_age = pick<int64_t>(random, {-4, 0, 0, 3});
}

/// The same numbers, column after column, in half of the cases.
inline void draw_strides(std::optional<at::Tensor>& table, Random& random) {
  if (table && random.below(2)) table = table->t().contiguous().t();
}

/// At times rows before those of the first sample, which belong to none. `more`: further tensors of rows.
inline void draw_lead(AttentionInputs& x, std::initializer_list<std::optional<at::Tensor>*> more, Random& random) {
  const auto lead = pick<int64_t>(random, {0, 0, 3});
  x.offsets = x.offsets + lead;
  auto moved = [&](const at::Tensor& rows, double filler) {
    auto shape = rows.sizes().vec();
    shape[0] = lead;
    return at::cat({at::full(shape, filler, rows.options()), rows});
  };
  x.k = moved(x.k, NAN), x.v = moved(x.v, NAN), x.time = moved(x.time, -1000);
  if (x.until) x.until = moved(*x.until, 1000);
  for (auto* rows : more)
    if (*rows) *rows = moved(**rows, (*rows)->scalar_type() == at::kBool ? 0 : NAN);
}

/// A sample's row, if there is one.
inline int64_t one_row(const AttentionInputs& x) { return std::min(integers(x.offsets)[0], x.k.size(0) - 1); }

/// Lets queries read rows of negative age: later rows of the block, and in half of the samples rows beyond it.
inline void draw_later_rows(AttentionInputs& x, RampOptions& o, Random& random) {
  o.min_age = pick<int64_t>(random, {-1, -9, std::numeric_limits<int64_t>::min()});
  x.start = x.start.clone();
  for (int64_t b = 0; b < x.q.size(0); ++b)
    if (random.below(2)) x.start.data_ptr<int64_t>()[b] -= static_cast<int64_t>(random.below(40));
}

/// Everything drawn at random, the presence of options too. Small cases suit numeric derivatives. Spans are float32 for
/// bfloat16 inputs, which could not tell them apart. What lies in spare rows is NaN.
inline RampCase random_ramp_case(uint64_t seed, at::ScalarType type, bool small, double clear) {
  Random random(seed, "ramp_attention case");
  const auto B = pick<int64_t>(random, {1, 2, 3, 4});
  const auto K = small ? pick<int64_t>(random, {1, 2, 4}) : pick<int64_t>(random, {1, 2, 5, 13, 67});
  const auto H = pick<int64_t>(random, {1, 2, 3, 4, 6});
  const auto D = small ? pick<int64_t>(random, {1, 2, 3}) : pick<int64_t>(random, {1, 3, 7, 64});
  const auto most = small ? uint64_t{7} : pick<uint64_t>(random, {11, 40, 150});

  std::vector<int64_t> offsets = {0}, start, times;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t rows = random.below(4) == 0 ? 0 : 1 + static_cast<int64_t>(random.below(most));
    start.push_back(static_cast<int64_t>(random.below(1000)) - 5);
    add_times(times, rows, start.back() + K - 1, K, random);
    offsets.push_back(static_cast<int64_t>(times.size()));
  }
  const int64_t used = offsets.back(), N = used + pick<int64_t>(random, {0, 3});
  times.resize(N, -1000);
  auto rows_of = [&](at::Tensor x) {
    x.narrow(0, used, N - used).fill_(NAN);
    return x;
  };

  RampCase c;
  c.inputs = {random_normal({B, K, H, D}, random).to(type),
              rows_of(random_normal({N, H, D}, random)).to(type),
              rows_of(random_normal({N, H, D}, random)).to(type),
              at::tensor(offsets, at::kLong),
              at::tensor(start, at::kLong),
              at::tensor(times, at::kLong)};
  auto& o = c.options;
  const auto wide = type == at::kBFloat16 ? at::kFloat : type;
  o.ramp = pick(random, {0.5, 1., 2.5, 7., 9.});
  const double longest = 1.3 * static_cast<double>(std::min<uint64_t>(most, 40));
  const auto spans = random.below(3);
  if (spans == 1) o.row_span = rows_of(clear_spans(N, random, longest, o.ramp, clear)).to(wide);
  if (spans == 2) o.head_span = clear_spans(H, random, longest, o.ramp, clear).to(wide);
  if (random.below(3) > 0) {
    const auto P = small ? pick<int64_t>(random, {1, 3, 12}) : pick<int64_t>(random, {1, 3, 20, 64, 300});
    o.position = random_normal({P, D}, random).to(type);
  }
  if (random.below(2)) o.logit = rows_of(random_normal({N, H}, random)).to(type);
  o.min_age = static_cast<int64_t>(random.below(2));
  o.max_age = random.below(2) ? kNoLimit : 1 + static_cast<int64_t>(random.below(most));
  draw_extras(c.inputs, o, random);
  if (random.below(4) == 0) draw_later_rows(c.inputs, o, random);
  if (random.below(3) == 0) draw_until(c.inputs, random);
  draw_strides(o.position, random);
  draw_lead(c.inputs, {&o.row_span, &o.logit}, random);
  c.text = "seed " + std::to_string(seed) + ": B " + std::to_string(B) + ", K " + std::to_string(K) + ", H " +
           std::to_string(H) + ", D " + std::to_string(D) + ", N " + std::to_string(N) + ", spans " +
           std::to_string(spans) + ", R " + std::to_string(o.ramp) + (c.inputs.until ? ", until" : "") +
           (o.age_bias ? ", bias" : "") + (o.scale ? ", scale" : "") + (o.min_age < 0 ? ", later rows" : "");
  return c;
}

/// The differentiable inputs of a case and their names.
using Leaves = std::vector<std::pair<std::string, at::Tensor>>;
inline Leaves leaves_of(RampCase& c) {
  Leaves leaves = {{"q", c.inputs.q}, {"k", c.inputs.k}, {"v", c.inputs.v}};
  auto& o = c.options;
  if (o.row_span) leaves.emplace_back("row_span", *o.row_span);
  if (o.head_span) leaves.emplace_back("head_span", *o.head_span);
  if (o.position) leaves.emplace_back("position", *o.position);
  if (o.logit) leaves.emplace_back("logit", *o.logit);
  if (o.age_bias) leaves.emplace_back("age_bias", *o.age_bias);
  return leaves;
}

struct RampExpected {
  std::vector<double> out, ramp_sum, received, stats;
};

/// One query of one head, by the formulas of ramp_attention.h. No tensor is computed with.
class RampOracle {
 public:
  RampOracle(const AttentionInputs& x, const RampOptions& o)
      : K(x.q.size(1)),
        H(x.q.size(2)),
        G(x.k.size(1)),
        D(x.q.size(3)),
        P(o.position ? o.position->size(0) : 0),
        o_(o),
        q_(doubles(x.q)),
        k_(doubles(x.k)),
        v_(doubles(x.v)),
        offsets_(integers(x.offsets)),
        start_(integers(x.start)),
        time_(integers(x.time)) {
    if (x.until) until_ = integers(*x.until);
    if (o.row_span) row_span_ = doubles(*o.row_span);
    if (o.head_span) head_span_ = doubles(*o.head_span);
    if (o.position) position_ = doubles(*o.position);
    if (o.logit) logit_ = doubles(*o.logit);
    if (o.age_bias) bias_ = doubles(*o.age_bias);
    y.out.assign(q_.size(), 0);
    y.ramp_sum.assign(start_.size(), 0);
    y.received.assign(time_.size() * H, 0);
    y.stats.assign(start_.size() * K * H * 2, 0);
    for (int64_t b = 0; b < x.q.size(0); ++b)
      for (int64_t t = 0; t < K; ++t)
        for (int64_t h = 0; h < H; ++h) query(b, t, h);
  }

  RampExpected y;

 private:
  bool spans() const { return !row_span_.empty() || !head_span_.empty(); }
  double remaining(int64_t i, int64_t h, int64_t age) const {
    return (row_span_.empty() ? head_span_[h] : row_span_[i]) - static_cast<double>(age);
  }

  double logit(const double* q, int64_t i, int64_t h, int64_t age) const {
    double sum = 0;
    for (int64_t d = 0; d < D; ++d) {
      sum += q[d] * k_[(i * G + h * G / H) * D + d];
      if (age >= 1 && age <= P) sum += q[d] * position_[(age - 1) * D + d];
    }
    sum = sum * o_.scale.value_or(1 / std::sqrt(static_cast<double>(D))) + (logit_.empty() ? 0 : logit_[i * H + h]);
    if (!o_.age_bias) return sum;
    const int64_t A = o_.age_bias->size(1);
    return sum + bias_[h * A + std::clamp<int64_t>(age - o_.bias_age, 0, A - 1)];
  }

  void query(int64_t b, int64_t t, int64_t h) {
    struct Visible {
      int64_t row;
      double logit, m;
    };
    const int64_t at = (b * K + t) * H + h;
    std::vector<Visible> visible;
    double largest = -INFINITY;
    for (int64_t i = offsets_[b]; i < offsets_[b + 1]; ++i) {
      const int64_t age = start_[b] + t - time_[i];
      if (age < o_.min_age || age > o_.max_age) continue;
      if (!until_.empty() && start_[b] + t >= until_[i]) continue;
      double m = 1;
      if (spans()) m = std::clamp(1 + remaining(i, h, age) / o_.ramp, 0., 1.);
      if (!row_span_.empty() && m == 0 && until_.empty()) continue;
      if (!row_span_.empty() && m > 0 && m < 1 && h == 0) y.ramp_sum[b] += remaining(i, h, age);
      visible.push_back({i, logit(&q_[at * D], i, h, age), m});
      largest = std::max(largest, visible.back().logit);
    }
    double sum = 0, masked = 0;
    for (const auto& r : visible) sum += std::exp(r.logit - largest);
    for (const auto& r : visible) masked += r.m * std::exp(r.logit - largest) / sum;
    y.stats[2 * at] = visible.empty() ? -INFINITY : largest + std::log(sum);
    y.stats[2 * at + 1] = spans() ? masked : visible.empty() ? 0 : 1;
    for (const auto& r : visible) {
      const double a = std::exp(r.logit - largest) / sum;
      const double weight = spans() ? r.m * a / (masked + 1e-8) : a;
      y.received[r.row * H + h] += weight;
      for (int64_t d = 0; d < D; ++d) y.out[at * D + d] += weight * v_[(r.row * G + h * G / H) * D + d];
    }
  }

  const int64_t K, H, G, D, P;
  const RampOptions o_;
  const std::vector<double> q_, k_, v_;
  const std::vector<int64_t> offsets_, start_, time_;
  std::vector<int64_t> until_;
  std::vector<double> row_span_, head_span_, position_, logit_, bias_;
};

/// The message of the c10::Error that `action` throws; "" where it throws none.
template <class Action>
std::string torch_error_of(const Action& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace lapse
