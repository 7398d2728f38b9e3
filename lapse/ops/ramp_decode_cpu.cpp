// A few queries before many rows, as in generation: without the packing that pays for blocks only.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lapse/ops/attention/expiry.h"
#include "lapse/ops/parallel.h"
#include "lapse/ops/ramp_cpu.h"
#include "lapse/ops/ramp_decode.h"
#include "lapse/ops/scratch.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kFewQueries = 4;  // up to which rows are rather read where they are than packed for tiles
constexpr int64_t kChunk = 128;     // rows that are summed on their own; whatever the number of threads
constexpr float kEpsilon = 1e-8f;

/// x in another type. Not `to` alone, which asks libtorch's dispatcher even where nothing is to be done.
Tensor as(const Tensor& x, at::ScalarType type) { return x.scalar_type() == type ? x : x.to(type); }

struct Chunk {
  int64_t sample, query, begin, end;  // rows of the packed table
};

/// T: float, or uint16_t where q, k, v and positions are bfloat16; the sums are float32 either way.
template <class T>
class Decode {
 public:
  Decode(const RampInputs& x, const RampOptions& o)
      : o_(o),
        B_(x.q.size(0)),
        K_(x.q.size(1)),
        H_(x.q.size(2)),
        D_(x.q.size(3)),
        q_(as(x.q, at::kFloat).contiguous()),
        k_(x.k.contiguous()),
        v_(x.v.contiguous()),
        start_(x.start.contiguous()),
        time_(x.time.contiguous()),
        offsets_(x.offsets.const_data_ptr<int64_t>()) {
    if (x.until) until_ = x.until->contiguous();
    if (o.row_span) row_span_ = as(*o.row_span, at::kFloat).contiguous();
    if (o.position) position_ = as(*o.position, x.k.scalar_type()).contiguous();
    if (o.logit) logit_ = as(*o.logit, at::kFloat).contiguous();
    y_.out = at::empty(x.q.sizes(), at::kFloat);
    y_.ramp_sum = at::empty({B_}, at::kFloat);
    y_.received = o.received ? at::zeros({x.k.size(0), H_}, at::kFloat) : at::empty({0}, at::kFloat);
    y_.stats = at::empty({B_, K_, H_, 2}, at::kFloat);
  }

  RampOutputs run() {
    std::vector<Chunk> chunks;
    std::vector<int64_t> first = {0};  // of each sample and query
    for (int64_t b = 0; b < B_; ++b)
      for (int64_t t = 0; t < K_; ++t) {
        for (int64_t i = offsets_[b]; i < offsets_[b + 1]; i += kChunk)
          chunks.push_back({b, t, i, std::min(i + kChunk, offsets_[b + 1])});
        first.push_back(static_cast<int64_t>(chunks.size()));
      }
    Scratch& scratch = Scratch::of_thread();  // of the caller's; `attend`, which may run on this thread, takes none
    scratch.release();
    const auto n = static_cast<int64_t>(chunks.size()), line = RampRowSums::floats(H_, D_, kChunk);
    float* sums = scratch.take<float>(n * line);
    float* ramp = scratch.take<float>(n);
    for_each_task_again(
        n, [&](int64_t c) { ramp[c] = attend(chunks[c], sums_at(sums + c * line)); },
        [&](int64_t chunk, int64_t count) {  // keys; where a sample has several queries its rows come again
          const int64_t begin = chunks[chunk].begin, end = std::max(begin, chunks[chunk + count - 1].end);
          const int64_t row = H_ * D_ * static_cast<int64_t>(sizeof(T));
          return Region{lines(k_) + begin * H_ * D_, (end - begin) * row};
        });
    auto* ramp_sum = y_.ramp_sum.mutable_data_ptr<float>();
    std::fill_n(ramp_sum, B_, 0.f);
    for (int64_t c = 0; c < n; ++c) ramp_sum[chunks[c].sample] += ramp[c];
    for (int64_t i = 0; i < B_ * K_; ++i) join(chunks, first[i], first[i + 1], i, sums, line);
    return y_;
  }

 private:
  static const T* lines(const Tensor& x) { return static_cast<const T*>(x.const_data_ptr()); }
  RampRowSums sums_at(float* x) const { return {x, H_, D_, kChunk}; }

  /// One chunk of rows before one query; the sum of r over the ramp.
  float attend(const Chunk& c, const RampRowSums& sums) const {
    int32_t age[kChunk];
    float weight[kChunk];
    float ramp_sum = 0;
    const int64_t n = c.end - c.begin, now = start_.const_data_ptr<int64_t>()[c.sample] + c.query;
    const auto* time = time_.const_data_ptr<int64_t>() + c.begin;
    const float* span = row_span_.defined() ? row_span_.const_data_ptr<float>() + c.begin : nullptr;
    const auto* until = until_.defined() ? until_.const_data_ptr<int64_t>() + c.begin : nullptr;
    const auto ramp = static_cast<float>(o_.ramp);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t a = now - time[i];
      age[i] = static_cast<int32_t>(std::clamp<int64_t>(a, -1, int64_t{1} << 30));
      const int64_t ends = until != nullptr  ? until[i]
                           : span != nullptr ? ramp_until(time[i], span[i], ramp)
                                             : kNoLimit;
      weight[i] = a >= o_.min_age && a <= o_.max_age && now < ends ? 1.f : -1.f;
      if (span == nullptr || weight[i] < 0) continue;
      const float r = span[i] - static_cast<float>(a);
      if (r >= 0) continue;
      weight[i] = r > -ramp ? std::max(0.f, 1 + r / ramp) : 0;
      if (r > -ramp) ramp_sum += r;
    }
    const int64_t stride = H_ * D_;
    ramp_rows_forward(RampRowBlock<T>{n, H_, D_, q_.const_data_ptr<float>() + (c.sample * K_ + c.query) * stride,
                                      lines(k_) + c.begin * stride, lines(v_) + c.begin * stride, stride,
                                      logit_.defined() ? logit_.const_data_ptr<float>() + c.begin * H_ : nullptr,
                                      position_.defined() ? lines(position_) : nullptr,
                                      position_.defined() ? position_.size(0) : 0, age, weight},
                      sums);
    return ramp_sum;
  }

  /// Joins the chunks [from, to) of one query, in their order.
  void join(const std::vector<Chunk>& chunks, int64_t from, int64_t to, int64_t query, float* all, int64_t line) {
    float* out = y_.out.mutable_data_ptr<float>() + query * H_ * D_;
    float* stats = y_.stats.mutable_data_ptr<float>() + query * H_ * 2;
    const float epsilon = o_.row_span ? kEpsilon : 0;
    for (int64_t h = 0; h < H_; ++h, out += D_, stats += 2) {
      float largest = -INFINITY, sum = 0, masked = 0;
      for (int64_t c = from; c < to; ++c) largest = std::max(largest, sums_at(all + c * line).largest[h]);
      std::fill_n(out, D_, 0.f);
      for (int64_t c = from; c < to; ++c) {
        const RampRowSums s = sums_at(all + c * line);
        if (s.sum[h] == 0) continue;
        const float factor = std::exp2(s.largest[h] - largest);
        sum += s.sum[h] * factor, masked += s.masked[h] * factor;
        for (int64_t d = 0; d < D_; ++d) out[d] += s.values[h * D_ + d] * factor;
      }
      constexpr float kLog2 = 0.6931471805599453f;
      stats[0] = sum > 0 ? largest * kLog2 + std::log(sum) : -INFINITY;
      stats[1] = sum > 0 ? masked / sum : 0;
      const float normal = sum > 0 ? 1 / (masked + epsilon * sum) : 0;
      for (int64_t d = 0; d < D_; ++d) out[d] *= normal;
      if (!o_.received) continue;
      auto* received = y_.received.mutable_data_ptr<float>();
      for (int64_t c = from; c < to; ++c) {
        const RampRowSums s = sums_at(all + c * line);
        const float factor = s.sum[h] == 0 ? 0 : std::exp2(s.largest[h] - largest) * normal;
        for (int64_t i = chunks[c].begin; i < chunks[c].end; ++i)
          received[i * H_ + h] += s.weights[h * (chunks[c].end - chunks[c].begin) + i - chunks[c].begin] * factor;
      }
    }
  }

  const RampOptions& o_;
  const int64_t B_, K_, H_, D_;
  const Tensor q_, k_, v_, start_, time_;
  const int64_t* offsets_;
  Tensor until_, row_span_, position_, logit_;
  RampOutputs y_;
};

}  // namespace

bool ramp_attention_decodes(const RampInputs& x, const RampOptions& o) {
  const auto type = x.q.scalar_type();
  return x.q.device().is_cpu() && x.q.dim() == 4 && x.q.size(1) <= kFewQueries && x.q.numel() > 0 &&
         (type == at::kFloat || type == at::kBFloat16) && !o.head_span && o.dropout == 0;
}

RampOutputs ramp_attention_decode(const RampInputs& x, const RampOptions& o) {
  RampOutputs y = x.k.scalar_type() == at::kBFloat16 ? Decode<uint16_t>(x, o).run() : Decode<float>(x, o).run();
  y.out = as(y.out, x.q.scalar_type());
  return y;
}

}  // namespace lapse
