// A few queries before many rows, as in generation: what both operators share. Rows are read where they lie, in chunks
// whose sums are joined in their order.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lapse/ops/attention/options.h"
#include "lapse/ops/attention/rows_forward.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {

constexpr int64_t kFewQueries = 4;  // up to which rows are rather read where they are than packed for tiles

/// T: float, or uint16_t where q, k, v and positions are bfloat16; the sums are float32 either way.
template <class T>
class FewQueries {
 public:
  FewQueries(const AttentionInputs& x, const CoreOptions& o, int64_t chunk)
      : B(x.q.size(0)),
        K(x.q.size(1)),
        H(x.q.size(2)),
        G(x.k.size(1)),
        D(x.q.size(3)),
        N(x.k.size(0)),
        chunk(chunk),
        scale(o.scale ? static_cast<float>(*o.scale) : 1 / std::sqrt(static_cast<float>(D))),
        offsets(x.offsets.const_data_ptr<int64_t>()),
        bias_age_(o.bias_age),
        q_(as(x.q, at::kFloat).contiguous()),
        k_(x.k.contiguous()),
        v_(x.v.contiguous()),
        start_(x.start.contiguous()),
        time_(x.time.contiguous()) {
    if (std::is_same_v<T, uint16_t> && x.q.scalar_type() == at::kBFloat16) narrow_q_ = x.q.contiguous();
    if (x.until) until_ = x.until->contiguous();
    if (o.position) position_ = as(*o.position, x.k.scalar_type()).contiguous();
    if (o.age_bias) bias_ = as(*o.age_bias, at::kFloat).contiguous();
    at_ = {q_.const_data_ptr<float>(),
           narrow_q_.defined() ? lines(narrow_q_) : nullptr,
           lines(k_),
           lines(v_),
           position_.defined() ? lines(position_) : nullptr,
           position_.defined() ? position_.size(0) : 0,
           time_.const_data_ptr<int64_t>(),
           until_.defined() ? until_.const_data_ptr<int64_t>() : nullptr,
           start_.const_data_ptr<int64_t>()};
  }

  const int64_t B, K, H, G, D, N;
  const int64_t chunk;  ///< rows that are summed on their own; whatever the number of threads
  const float scale;
  const int64_t* offsets;

  const float* q(int64_t sample, int64_t query) const { return at_.q + (sample * K + query) * H * D; }
  const T* narrow_q(int64_t sample, int64_t query) const {
    return at_.narrow_q == nullptr ? nullptr : at_.narrow_q + (sample * K + query) * H * D;
  }
  const T* k(int64_t row) const { return at_.k + row * G * D; }
  const T* v(int64_t row) const { return at_.v + row * G * D; }
  int64_t row_bytes() const { return G * D * static_cast<int64_t>(sizeof(T)); }
  const T* position() const { return at_.position; }
  int64_t positions() const { return at_.positions; }
  const int64_t* time() const { return at_.time; }
  const int64_t* until() const { return at_.until; }
  int64_t time_of(int64_t sample, int64_t query) const { return at_.start[sample] + query; }
  static int32_t narrow(int64_t age) {
    constexpr int64_t far = int64_t{1} << 30;
    return static_cast<int32_t>(std::clamp(age, -far, far));
  }

  bool biased() const { return bias_.defined(); }
  float bias(int64_t head, int64_t age) const {
    const int64_t A = bias_.size(1);
    return bias_.const_data_ptr<float>()[head * A + std::clamp<int64_t>(age - bias_age_, 0, A - 1)];
  }
  /// Adds it to logit [rows][H].
  void add_bias(const int32_t* age, int64_t rows, float* logit) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < H; ++h) logit[i * H + h] += bias(h, age[i]);
  }

  int64_t line() const { return RowSums::floats(H, D, chunk); }  ///< numbers of a chunk's sums
  RowSums sums_at(float* x) const { return {x, H, D, chunk}; }

  /// One query before `rows` rows from `begin` on; age, weight, line: RowBlock's; logit [rows][H], or null.
  void attend(int64_t sample, int64_t query, int64_t begin, int64_t rows, const float* logit, const int32_t* age,
              const float* weight, const RowSums& sums, const int32_t* line = nullptr) const {
    rows_forward(RowBlock<T>{rows, G, H / G, D, scale, q(sample, query), narrow_q(sample, query), k(begin), v(begin),
                             G * D, logit, position(), positions(), age, weight, line},
                 sums);
  }

  struct Softmax {
    float largest, sum, masked;  ///< relative to 2^largest
  };
  /// Joins the sums of chunks, sums(0) ... sums(chunks - 1), for one head: out [D] is not normalised.
  template <class Sums>
  Softmax join(int64_t chunks, const Sums& sums, int64_t h, float* out) const {
    Softmax all{-INFINITY, 0, 0};
    for (int64_t c = 0; c < chunks; ++c) all.largest = std::max(all.largest, sums(c).largest[h]);
    std::fill_n(out, D, 0.f);
    for (int64_t c = 0; c < chunks; ++c) {
      const RowSums s = sums(c);
      if (s.sum[h] == 0) continue;
      const float factor = std::exp2(s.largest[h] - all.largest);
      all.sum += s.sum[h] * factor, all.masked += s.masked[h] * factor;
      for (int64_t d = 0; d < D; ++d) out[d] += s.values[h * D + d] * factor;
    }
    return all;
  }
  /// Of the joined logits.
  static float log_sum_exp(const Softmax& all) {
    constexpr float kLog2 = 0.6931471805599453f;
    return all.sum == 0 ? -INFINITY : all.largest * kLog2 + std::log(all.sum);
  }

 private:
  static const T* lines(const at::Tensor& x) { return static_cast<const T*>(x.const_data_ptr()); }

  /// Where the data of the tensors below lies, looked up once: in another thread each field of a tensor would be a
  /// cache miss.
  struct Places {
    const float* q;
    const T *narrow_q, *k, *v, *position;
    int64_t positions;
    const int64_t *time, *until, *start;
  };

  Places at_;
  const int64_t bias_age_;
  const at::Tensor q_, k_, v_, start_, time_;
  at::Tensor narrow_q_, until_, position_, bias_;
};

}  // namespace lapse
