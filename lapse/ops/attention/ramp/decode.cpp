// A few queries before many rows, as in generation: without the packing that pays for blocks only.

#include <algorithm>
#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/expiry.h"
#include "lapse/ops/attention/few_queries.h"
#include "lapse/ops/attention/ramp/cpu.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/parallel/scratch.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kChunk = 128;

struct Chunk {
  int64_t sample, query, begin, end;  // rows of the packed table
};

template <class T>
class Decode {
 public:
  Decode(const AttentionInputs& x, const RampOptions& o) : o_(o), call_(x, o, kChunk) {
    if (o.row_span) row_span_ = as(*o.row_span, at::kFloat).contiguous();
    if (o.logit) logit_ = as(*o.logit, at::kFloat).contiguous();
    y_.out = empty_rows(x.q.sizes());
    y_.ramp_sum = empty_rows({call_.B});
    y_.received = o.received ? at::zeros({call_.N, call_.H}, at::kFloat) : empty_rows({0});
    y_.stats = empty_rows({call_.B, call_.K, call_.H, 2});
  }

  RampOutputs run() {
    std::vector<Chunk> chunks;
    std::vector<int64_t> first = {0};  // of each sample and query
    for (int64_t b = 0; b < call_.B; ++b)
      for (int64_t t = 0; t < call_.K; ++t) {
        const int64_t end = call_.offsets[b + 1];
        for (int64_t i = call_.offsets[b]; i < end; i += kChunk) chunks.push_back({b, t, i, std::min(i + kChunk, end)});
        first.push_back(static_cast<int64_t>(chunks.size()));
      }
    Scratch& scratch = Scratch::of_thread();  // of the caller's; `attend`, which may run on this thread, takes none
    scratch.release();
    const auto n = static_cast<int64_t>(chunks.size());
    const bool logits = call_.biased() || logit_.defined();
    const int64_t line = call_.line() + (logits ? kChunk * call_.H : 0);  // the rows' logits with their bias
    float* sums = scratch.take<float>(n * line);
    float* ramp = scratch.take<float>(n);
    for_each_task_again(
        n, [&](int64_t c) { ramp[c] = attend(chunks[c], sums + c * line); },
        [&](int64_t chunk, int64_t count) {  // keys; where a sample has several queries its rows come again
          const int64_t begin = chunks[chunk].begin, end = std::max(begin, chunks[chunk + count - 1].end);
          return Region{call_.k(begin), (end - begin) * call_.row_bytes()};
        });
    auto* ramp_sum = y_.ramp_sum.mutable_data_ptr<float>();
    std::fill_n(ramp_sum, call_.B, 0.f);
    for (int64_t c = 0; c < n; ++c) ramp_sum[chunks[c].sample] += ramp[c];
    for (int64_t i = 0; i < call_.B * call_.K; ++i) join(chunks, first[i], first[i + 1], i, sums, line);
    return y_;
  }

 private:
  /// One chunk of rows before one query; the sum of r over the ramp. room: the sums, then the rows' logits.
  float attend(const Chunk& c, float* room) const {
    int32_t age[kChunk], line[kChunk];  // of the rows that are read
    float weight[kChunk];
    float ramp_sum = 0;
    const int64_t H = call_.H, now = call_.time_of(c.sample, c.query);
    int64_t n = 0;
    const int64_t* time = call_.time() + c.begin;
    const int64_t* until = call_.until() == nullptr ? nullptr : call_.until() + c.begin;
    const float* span = row_span_.defined() ? row_span_.const_data_ptr<float>() + c.begin : nullptr;
    const auto ramp = static_cast<float>(o_.ramp);
    for (int64_t i = 0; i < c.end - c.begin; ++i) {
      const int64_t a = now - time[i];
      bool seen = a >= o_.min_age && a <= o_.max_age;
      if (until != nullptr)
        seen = seen && now < until[i] && !(span != nullptr && std::isnan(span[i]));
      else if (span != nullptr)
        seen = seen && ramp_sees(span[i], a, ramp);
      if (!seen && !o_.received) continue;  // what rows received is asked of all
      age[n] = call_.narrow(a), line[n] = static_cast<int32_t>(i), weight[n] = seen ? 1.f : -1.f;
      if (const float r = span == nullptr ? 0 : span[i] - static_cast<float>(a); seen && r < 0) {
        weight[n] = r > -ramp ? std::max(0.f, 1 + r / ramp) : 0;
        if (r > -ramp) ramp_sum += r;
      }
      ++n;
    }
    const bool logits = call_.biased() || logit_.defined();
    float* logit = logits ? room + call_.line() : nullptr;
    for (int64_t i = 0; logits && i < n; ++i) {
      if (logit_.defined())
        std::copy_n(logit_.const_data_ptr<float>() + (c.begin + line[i]) * H, H, logit + i * H);
      else
        std::fill_n(logit + i * H, H, 0.f);
    }
    if (call_.biased()) call_.add_bias(age, n, logit);
    call_.attend(c.sample, c.query, c.begin, n, logit, age, weight, call_.sums_at(room), line);
    return ramp_sum;
  }

  /// Joins the chunks [from, to) of one query, in their order.
  void join(const std::vector<Chunk>& chunks, int64_t from, int64_t to, int64_t query, float* all, int64_t line) {
    const int64_t H = call_.H, D = call_.D;
    float* out = y_.out.mutable_data_ptr<float>() + query * H * D;
    float* stats = y_.stats.mutable_data_ptr<float>() + query * H * 2;
    const float epsilon = o_.row_span ? static_cast<float>(kRenormalisation) : 0;
    const auto sums = [&](int64_t c) { return call_.sums_at(all + (from + c) * line); };
    for (int64_t h = 0; h < H; ++h, out += D, stats += 2) {
      const auto softmax = call_.join(to - from, sums, h, out);
      const float sum = softmax.sum, masked = softmax.masked;
      stats[0] = call_.log_sum_exp(softmax);
      stats[1] = sum == 0 ? 0 : masked / sum;
      const float normal = sum == 0 ? 0 : 1 / (masked + epsilon * sum);
      for (int64_t d = 0; d < D; ++d) out[d] *= normal;
      if (!o_.received) continue;
      auto* received = y_.received.mutable_data_ptr<float>();
      for (int64_t c = from; c < to; ++c) {
        const RowSums s = call_.sums_at(all + c * line);
        const float factor = s.sum[h] == 0 ? 0 : std::exp2(s.largest[h] - softmax.largest) * normal;
        for (int64_t i = chunks[c].begin; i < chunks[c].end; ++i)
          received[i * H + h] += s.weights[h * (chunks[c].end - chunks[c].begin) + i - chunks[c].begin] * factor;
      }
    }
  }

  const RampOptions& o_;
  const FewQueries<T> call_;
  Tensor row_span_, logit_;
  RampOutputs y_;
};

}  // namespace

bool ramp_attention_decodes(const AttentionInputs& x, const RampOptions& o) {
  const auto type = x.q.scalar_type();
  return x.q.device().is_cpu() && x.q.dim() == 4 && x.q.size(1) <= kFewQueries && x.q.numel() > 0 &&
         (type == at::kFloat || type == at::kBFloat16) && !o.head_span && o.dropout == 0;
}

RampOutputs ramp_attention_decode(const AttentionInputs& x, const RampOptions& o) {
  RampOutputs y = x.k.scalar_type() == at::kBFloat16 ? Decode<uint16_t>(x, o).run() : Decode<float>(x, o).run();
  y.out = as(y.out, x.q.scalar_type());
  return y;
}

}  // namespace lapse
