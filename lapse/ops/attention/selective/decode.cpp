// A few queries before many rows, as in generation: rows are read where they lie, by few_queries.h with -F as each
// row's logit. F is one number for each row, so that chunks of rows are independent.

#include <algorithm>
#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/few_queries.h"
#include "lapse/ops/attention/selective/cpu.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/matrix_passes.h"
#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/parallel/scratch.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kChunk = 256;

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

template <class T>
class Decode {
 public:
  Decode(const AttentionInputs& x, const SelectiveOptions& o) : o_(o), call_(x, core_options(o), kChunk) {
    if (o.first && !o.mask_first) first_ = o.first->contiguous();
    if (o.select_q) {
      select_q_ = as(*o.select_q, at::kFloat).contiguous();
      select_k_ = as(*o.select_k, x.k.scalar_type()).contiguous();
    }
    y_.out = empty_rows(x.q.sizes());
    y_.memory = at::zeros({call_.B, call_.K}, at::kFloat);
    y_.masking = at::zeros({call_.N}, at::kFloat);
    y_.stats = empty_rows({call_.B, call_.K, call_.H});
    const int64_t first = call_.offsets[0], rows = call_.offsets[call_.B] - first;
    if (o.masking) y_.masking.narrow(0, first, rows).copy_(o.masking->narrow(0, first, rows));
  }

  SelectiveOutputs run() {
    std::vector<Chunk> chunks;
    std::vector<int64_t> first = {0};  // of each sample
    for (int64_t b = 0; b < call_.B; ++b) {
      const int64_t end = call_.offsets[b + 1];
      for (int64_t i = call_.offsets[b]; i < end; i += kChunk) chunks.push_back({b, i, std::min(i + kChunk, end)});
      first.push_back(static_cast<int64_t>(chunks.size()));
    }
    Scratch& scratch = Scratch::of_thread();  // of the caller's; `attend`, which may run on this thread, takes none
    scratch.release();
    const auto n = static_cast<int64_t>(chunks.size());
    line_ = call_.line();
    logits_at_ = call_.K * line_ + call_.K;
    const int64_t size = logits_at_ + kChunk * call_.H;  // sums and memory of each query, then the rows' logits
    float* room = scratch.take<float>(n * size);
    for_each_task(n, [&](int64_t c) { attend(chunks[c], room + c * size); });
    for (int64_t b = 0; b < call_.B; ++b)
      for (int64_t t = 0; t < call_.K; ++t) join(room + first[b] * size, first[b + 1] - first[b], size, b, t);
    return y_;
  }

 private:
  Selects<T> selects(int64_t b) const {
    if (!o_.select_q)
      return {call_.q(b, 0),     call_.k(0), call_.position(),  call_.H * call_.D,
              call_.G * call_.D, call_.D,    call_.positions(), call_.scale};
    const int64_t E = select_q_.size(2);
    return {select_q_.const_data_ptr<float>() + b * call_.K * E,
            static_cast<const T*>(select_k_.const_data_ptr()),
            nullptr,
            E,
            E,
            E,
            0,
            1 / std::sqrt(static_cast<float>(E))};
  }

  /// One chunk of rows before all queries.
  void attend(const Chunk& c, float* room) {
    const int64_t n = c.end - c.begin, H = call_.H;
    float* F = y_.masking.mutable_data_ptr<float>() + c.begin;
    float* logit = room + logits_at_;
    float S[kChunk], weight[kChunk];
    int32_t age[kChunk];
    for (int64_t t = 0; t < call_.K; ++t) {
      see(c, t, age, weight, S);
      if (!o_.shift)
        for (int64_t i = 0; i < n; ++i) F[i] += S[i];
      float& memory = room[call_.K * line_ + t];
      memory = 0;
      for (int64_t i = 0; i < n; ++i) {
        std::fill_n(logit + i * H, H, -F[i]);
        if (weight[i] > 0) memory += 1 - std::min(F[i], static_cast<float>(o_.cap)) / static_cast<float>(o_.cap);
      }
      if (call_.biased()) call_.add_bias(age, n, logit);
      call_.attend(c.sample, t, c.begin, n, logit, age, weight, call_.sums_at(room + t * line_));
      if (o_.shift)
        for (int64_t i = 0; i < n; ++i) F[i] += S[i];
    }
  }

  /// Ages, what query t sees (1, else -1), and S.
  void see(const Chunk& c, int64_t t, int32_t* age, float* weight, float* S) const {
    const int64_t now = call_.time_of(c.sample, t);
    const int64_t *time = call_.time(), *until = call_.until();
    const auto* first = first_.defined() ? first_.const_data_ptr<bool>() : nullptr;
    const Selects<T> selects = this->selects(c.sample);
    const bool biased = call_.biased() && !o_.select_q;
    for (int64_t row = c.begin; row < c.end; ++row) {
      const int64_t i = row - c.begin, a = now - time[row];
      age[i] = call_.narrow(a);
      const bool visible = a >= 0 && a <= o_.max_age && (until == nullptr || now < until[row]);
      weight[i] = visible ? 1.f : -1.f;
      S[i] = 0;
      if (!visible || (first != nullptr && first[row]) || (a == 0 && !o_.mask_self)) continue;
      const float s = selects.logit(t, row, a) + (biased ? call_.bias(0, a) : 0);
      S[i] = o_.relu && s <= 0 ? 0 : s;  // NaN stays NaN
    }
  }

  /// Joins a sample's chunks, `size` apart, for query t, in their order.
  void join(float* room, int64_t chunks, int64_t size, int64_t b, int64_t t) {
    const int64_t query = b * call_.K + t, H = call_.H, D = call_.D;
    for (int64_t c = 0; c < chunks; ++c)
      y_.memory.mutable_data_ptr<float>()[query] += room[c * size + call_.K * line_ + t];
    float* out = y_.out.mutable_data_ptr<float>() + query * H * D;
    const auto sums = [&](int64_t c) { return call_.sums_at(room + c * size + t * line_); };
    for (int64_t h = 0; h < H; ++h, out += D) {
      const auto softmax = call_.join(chunks, sums, h, out);
      y_.stats.mutable_data_ptr<float>()[query * H + h] = call_.log_sum_exp(softmax);
      for (int64_t d = 0; d < D; ++d) out[d] *= softmax.sum == 0 ? 0 : 1 / softmax.sum;
    }
  }

  const SelectiveOptions& o_;
  const FewQueries<T> call_;
  Tensor first_, select_q_, select_k_;
  int64_t line_ = 0, logits_at_ = 0;
  SelectiveOutputs y_;
};

}  // namespace

SelectiveOutputs selective_attention_decode(const AttentionInputs& x, const SelectiveOptions& o) {
  return x.k.scalar_type() == at::kBFloat16 ? Decode<uint16_t>(x, o).run() : Decode<float>(x, o).run();
}

}  // namespace lapse
