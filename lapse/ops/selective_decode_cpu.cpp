// A few queries before many rows, as in generation: rows are read where they lie, by ramp_decode.h with -F as each
// row's logit. F is one number for each row, so that chunks of rows are independent.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lapse/ops/parallel.h"
#include "lapse/ops/ramp_decode.h"
#include "lapse/ops/scratch.h"
#include "lapse/ops/selective_cpu.h"
#include "lapse/ops/vector.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kChunk = 256;  // rows that a task reads; whatever the number of threads

struct Chunk {
  int64_t sample, begin, end;  // rows of the packed table
};

/// q . k_i / sqrt(width) of what selects.
template <class T>
struct Selects {
  const float* q;         // of one sample
  const T *k, *position;  // lines of k are `stride` apart
  int64_t q_stride, stride, width, ages;
  float scale;

  float logit(int64_t t, int64_t row, int64_t age) const {
    const float* line = q + t * q_stride;
    float s = dot(line, k + row * stride, width);
    if (age >= 1 && age <= ages) s += dot(line, position + (age - 1) * width, width);
    return s * scale;
  }
};

/// T: float, or uint16_t where q, k, v, positions and what selects are bfloat16; the sums are float32 either way.
template <class T>
class Decode {
 public:
  Decode(const SelectiveInputs& x, const SelectiveOptions& o)
      : o_(o),
        B_(x.q.size(0)),
        K_(x.q.size(1)),
        H_(x.q.size(2)),
        D_(x.q.size(3)),
        q_(x.q.to(at::kFloat).contiguous()),
        k_(x.k.contiguous()),
        v_(x.v.contiguous()),
        start_(x.start.contiguous()),
        time_(x.time.contiguous()),
        offsets_(x.offsets.const_data_ptr<int64_t>()) {
    if (x.until) until_ = x.until->contiguous();
    if (o.first && !o.mask_first) first_ = o.first->contiguous();
    const auto type = x.k.scalar_type();
    if (o.position) position_ = o.position->to(type).contiguous();
    if (o.select_q) select_q_ = o.select_q->to(at::kFloat).contiguous(), select_k_ = o.select_k->to(type).contiguous();
    y_.out = at::empty(x.q.sizes(), at::kFloat);
    y_.memory = at::zeros({B_, K_}, at::kFloat);
    y_.masking = at::zeros({x.k.size(0)}, at::kFloat);
    y_.stats = at::empty({B_, K_, H_}, at::kFloat);
    const int64_t first = offsets_[0], rows = offsets_[B_] - first;
    if (o.masking) y_.masking.narrow(0, first, rows).copy_(o.masking->narrow(0, first, rows));
  }

  SelectiveOutputs run() {
    std::vector<Chunk> chunks;
    std::vector<int64_t> first = {0};  // of each sample
    for (int64_t b = 0; b < B_; ++b) {
      for (int64_t i = offsets_[b]; i < offsets_[b + 1]; i += kChunk)
        chunks.push_back({b, i, std::min(i + kChunk, offsets_[b + 1])});
      first.push_back(static_cast<int64_t>(chunks.size()));
    }
    Scratch& scratch = Scratch::of_thread();  // of the caller's; `attend`, which may run on this thread, takes none
    scratch.release();
    const auto n = static_cast<int64_t>(chunks.size());
    line_ = RampRowSums::floats(H_, D_, kChunk);
    logits_at_ = K_ * line_ + K_;
    const int64_t size = logits_at_ + kChunk * H_;  // sums and memory of each query, then the rows' logits
    float* room = scratch.take<float>(n * size);
    for_each_task(n, [&](int64_t c) { attend(chunks[c], room + c * size); });
    for (int64_t b = 0; b < B_; ++b)
      for (int64_t t = 0; t < K_; ++t) join(room + first[b] * size, first[b + 1] - first[b], size, b, t);
    return y_;
  }

 private:
  RampRowSums sums_at(float* x) const { return {x, H_, D_, kChunk}; }

  static const T* lines(const Tensor& x) { return static_cast<const T*>(x.const_data_ptr()); }

  Selects<T> selects(int64_t b) const {
    if (o_.select_q) {
      const int64_t E = select_q_.size(2);
      return {select_q_.const_data_ptr<float>() + b * K_ * E,
              lines(select_k_),
              nullptr,
              E,
              E,
              E,
              0,
              1 / std::sqrt(static_cast<float>(E))};
    }
    return {q_.const_data_ptr<float>() + b * K_ * H_ * D_,
            lines(k_),
            position(),
            H_ * D_,
            H_ * D_,
            D_,
            position_.defined() ? position_.size(0) : 0,
            1 / std::sqrt(static_cast<float>(D_))};
  }
  const T* position() const { return position_.defined() ? lines(position_) : nullptr; }

  /// One chunk of rows before all queries.
  void attend(const Chunk& c, float* room) {
    const int64_t n = c.end - c.begin, stride = H_ * D_;
    float* F = y_.masking.mutable_data_ptr<float>() + c.begin;
    float* logit = room + logits_at_;
    float S[kChunk], weight[kChunk];
    int32_t age[kChunk];
    for (int64_t t = 0; t < K_; ++t) {
      see(c, t, age, weight, S);
      if (!o_.shift)
        for (int64_t i = 0; i < n; ++i) F[i] += S[i];
      float& memory = room[K_ * line_ + t];
      memory = 0;
      for (int64_t i = 0; i < n; ++i) {
        std::fill_n(logit + i * H_, H_, -F[i]);
        if (weight[i] > 0) memory += 1 - std::min(F[i], static_cast<float>(o_.cap)) / static_cast<float>(o_.cap);
      }
      ramp_rows_forward(RampRowBlock<T>{n, H_, D_, q_.const_data_ptr<float>() + (c.sample * K_ + t) * stride,
                                        lines(k_) + c.begin * stride, lines(v_) + c.begin * stride, stride, logit,
                                        position(), position_.defined() ? position_.size(0) : 0, age, weight},
                        sums_at(room + t * line_));
      if (o_.shift)
        for (int64_t i = 0; i < n; ++i) F[i] += S[i];
    }
  }

  /// Ages, what query t sees (1, else -1), and S.
  void see(const Chunk& c, int64_t t, int32_t* age, float* weight, float* S) const {
    const int64_t now = start_.const_data_ptr<int64_t>()[c.sample] + t;
    const auto* time = time_.const_data_ptr<int64_t>();
    const auto* until = until_.defined() ? until_.const_data_ptr<int64_t>() : nullptr;
    const auto* first = first_.defined() ? first_.const_data_ptr<bool>() : nullptr;
    const Selects<T> selects = this->selects(c.sample);
    for (int64_t row = c.begin; row < c.end; ++row) {
      const int64_t i = row - c.begin, a = now - time[row];
      age[i] = static_cast<int32_t>(std::clamp<int64_t>(a, -1, int64_t{1} << 30));
      const bool visible = a >= 0 && a <= o_.max_age && (until == nullptr || now < until[row]);
      weight[i] = visible ? 1.f : -1.f;
      S[i] = 0;
      if (!visible || (first != nullptr && first[row]) || (a == 0 && !o_.mask_self)) continue;
      const float s = selects.logit(t, row, a);
      S[i] = o_.relu && s <= 0 ? 0 : s;  // NaN stays NaN
    }
  }

  /// Joins a sample's chunks, `size` apart, for query t, in their order.
  void join(float* room, int64_t chunks, int64_t size, int64_t b, int64_t t) {
    const int64_t query = b * K_ + t;
    for (int64_t c = 0; c < chunks; ++c) y_.memory.mutable_data_ptr<float>()[query] += room[c * size + K_ * line_ + t];
    float* out = y_.out.mutable_data_ptr<float>() + query * H_ * D_;
    for (int64_t h = 0; h < H_; ++h, out += D_) {
      float largest = -INFINITY, sum = 0;
      auto sums = [&](int64_t c) { return sums_at(room + c * size + t * line_); };
      for (int64_t c = 0; c < chunks; ++c) largest = std::max(largest, sums(c).largest[h]);
      std::fill_n(out, D_, 0.f);
      for (int64_t c = 0; c < chunks; ++c) {
        const RampRowSums s = sums(c);
        if (s.sum[h] == 0) continue;
        const float factor = std::exp2(s.largest[h] - largest);
        sum += s.sum[h] * factor;
        for (int64_t d = 0; d < D_; ++d) out[d] += s.values[h * D_ + d] * factor;
      }
      constexpr float kLog2 = 0.6931471805599453f;
      y_.stats.mutable_data_ptr<float>()[query * H_ + h] = sum == 0 ? -INFINITY : largest * kLog2 + std::log(sum);
      for (int64_t d = 0; d < D_; ++d) out[d] *= sum == 0 ? 0 : 1 / sum;
    }
  }

  const SelectiveOptions& o_;
  const int64_t B_, K_, H_, D_;
  const Tensor q_, k_, v_, start_, time_;
  const int64_t* offsets_;
  Tensor until_, first_, position_, select_q_, select_k_;
  int64_t line_ = 0, logits_at_ = 0;
  SelectiveOutputs y_;
};

}  // namespace

SelectiveOutputs selective_attention_decode(const SelectiveInputs& x, const SelectiveOptions& o) {
  return x.k.scalar_type() == at::kBFloat16 ? Decode<uint16_t>(x, o).run() : Decode<float>(x, o).run();
}

}  // namespace lapse
