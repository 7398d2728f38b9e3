// The forward pass in tiles: products by brgemm, the softmax between them by tile.h. Nothing of queries x rows is
// kept; a query's running maximum and sums go from tile to tile.

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/cpu.h"
#include "lapse/ops/attention/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

/// What one task leaves for the other chunks of its rows: per head and block of queries the running sums, and the
/// weighted values [width][queries].
struct Partial {
  RunningSoftmax running;
  std::vector<float> values;
};

template <class T>
class Forward {
 public:
  Forward(const AttentionInputs& x, const RampOptions& o) : call_(x, o), options_(o) {
    const auto wide = x.q.options().dtype(at::kFloat);
    y_.out = at::empty({call_.B, call_.K, call_.H, call_.D}, wide.dtype(call_.q_tensor.scalar_type()));
    y_.ramp_sum = at::zeros({call_.B}, wide);
    y_.received = o.received ? at::zeros({call_.N, call_.H}, wide) : at::empty({0}, wide);
    y_.stats = at::empty({call_.B, call_.K, call_.H, 2}, wide);
  }

  RampOutputs run() {
    const auto& tasks = call_.plan.tasks;
    const auto n = static_cast<int64_t>(tasks.size());
    partials_.resize(n);
    ramp_sums_.assign(n, 0);
    for_each_task(n, [&](int64_t i) { attend(i); });
    for_each_task(n, [&](int64_t i) {
      if (tasks[i].chunk == 0 && tasks[i].chunks > 1) merge(i);
    });
    for (int64_t b = 0; b < call_.B; ++b)
      if (call_.plan.rows[b].count == 0) see_nothing(b);
    std::vector<double> sums(call_.B, 0);
    for (int64_t i = 0; i < n; ++i) sums[tasks[i].sample] += ramp_sums_[i];
    std::copy(sums.begin(), sums.end(), y_.ramp_sum.template mutable_data_ptr<float>());
    if (options_.received) for_each_task(n, [&](int64_t i) { receive(tasks[i]); });
    return y_;
  }

 private:
  void attend(int64_t number) {
    const RowTask& task = call_.plan.tasks[number];
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    TiledWork<T> work(call_, task, scratch);
    const int64_t most = call_.queries, width = call_.width;
    T* v = scratch.take<T>(kTileRows * width);
    T* vt = scratch.take<T>(work.tiles() * kTileRows * width);
    for (int64_t i = 0; i < work.tiles(); ++i) {
      pack(call_.v + task.key_head * call_.D, call_.G * call_.D, work.rows_of(i), kTileRows, call_.D, v, kTileRows,
           width);
      transposed(v, kTileRows, width, vt + i * kTileRows * width);
    }
    float* score = scratch.take<float>(kTileRows * most);
    T* weight = scratch.take<T>(kTileRows * most);
    float* values = scratch.take<float>(width * most);
    float* out = scratch.take<float>(width * most);
    alignas(64) float rescale[kTileQueries];
    if (task.chunks > 1) partials_[number].resize(call_.group * call_.query_blocks());
    for (int64_t part = 0; part < call_.group * call_.query_blocks(); ++part) {
      const auto [h, j] = head_and_block(task, part);
      const int64_t lanes = call_.lanes(j);
      const bool sums = options_.row_span && h == 0;
      work.set_head(h);
      work.begin_queries(j);
      alignas(64) RunningSoftmax running;
      begin_softmax(running);
      bool any = false;
      for (int64_t i = 0; i < work.tiles(); ++i) {
        ScoreTile tile;
        if (!work.tile(i, tile)) continue;
        work.scores(i, score);
        tile_forward(tile, score, running, rescale, sums ? &ramp_sums_[number] : nullptr);
        if (any) scale_columns(values, rescale, static_cast<int>(width), static_cast<int>(lanes));
        multiply(width, lanes, tile.rows, vt + i * kTileRows * width, kTileRows,
                 rounded_right(score, tile.rows, lanes, weight), values, std::exchange(any, true));
      }
      if (!any) std::fill_n(values, width * lanes, 0.f);
      if (task.chunks > 1)
        partials_[number][part] = {running, std::vector<float>(values, values + width * lanes)};
      else
        finish(task.sample, h, j, running, values, out);
    }
  }

  /// Of the task's parts: all blocks of its first head, then of the next.
  std::pair<int64_t, int64_t> head_and_block(const RowTask& task, int64_t part) const {
    const int64_t blocks = call_.query_blocks();
    return {task.key_head * call_.group + part / blocks, part % blocks};
  }

  /// out = values / (Z + 1e-8) with values relative to the softmax's sum, and the statistics. Exactly 0 for a query
  /// that sees nothing, whatever stands in the rows that others see; NaN for others of a head whose span is NaN.
  void finish(int64_t sample, int64_t h, int64_t j, const RunningSoftmax& running, float* values, float* out) {
    const int64_t lanes = call_.lanes(j), width = call_.width, first = j * call_.queries;
    const float epsilon = call_.spans() ? static_cast<float>(kRenormalisation) : 0;
    const float scale = 1 / call_.unit;
    const bool diverged = !call_.head_span.empty() && std::isnan(call_.head_span[h]);
    alignas(64) float factor[kTileQueries];
    float* stats = y_.stats.template mutable_data_ptr<float>();
    for (int64_t t = 0; t < lanes; ++t) {
      const float sum = running.sum[t], masked = running.masked[t];
      factor[t] = sum == 0 ? 0 : diverged ? NAN : 1 / (masked + epsilon * sum);
      if (first + t >= call_.K) continue;
      float* at = stats + call_.query_at(sample, first + t, h) / call_.D * 2;
      at[0] = sum == 0 ? -INFINITY : running.largest[t] * scale + std::log(sum);
      at[1] = sum == 0 ? 0 : masked / sum;
    }
    transpose(values, static_cast<int>(lanes), out, static_cast<int>(width), static_cast<int>(width),
              static_cast<int>(lanes));
    T* to = y_.out.template mutable_data_ptr<T>() + call_.query_at(sample, first, h);
    store_lines(out, width, std::min(lanes, call_.K - first), call_.D, factor, 1, Lines<T>{to, call_.H * call_.D});
  }

  /// Joins the chunks that begin with this task, in their order.
  void merge(int64_t first) {
    const RowTask& task = call_.plan.tasks[first];
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const int64_t width = call_.width;
    float* out = scratch.take<float>(width * call_.queries);
    float* values = scratch.take<float>(width * call_.queries);
    const float scale2 = kLog2e / call_.unit;
    for (int64_t part = 0; part < call_.group * call_.query_blocks(); ++part) {
      const auto [h, j] = head_and_block(task, part);
      const int64_t lanes = call_.lanes(j);
      Partial& all = partials_[first][part];
      for (int64_t c = 1; c < task.chunks; ++c) {
        const Partial& more = partials_[first + c][part];
        for (int64_t t = 0; t < lanes; ++t) {
          const float largest = std::max(all.running.largest[t], more.running.largest[t]);
          const float ours = std::exp2((all.running.largest[t] - largest) * scale2);
          const float theirs = std::exp2((more.running.largest[t] - largest) * scale2);
          all.running.largest[t] = largest;
          all.running.sum[t] = all.running.sum[t] * ours + more.running.sum[t] * theirs;
          all.running.masked[t] = all.running.masked[t] * ours + more.running.masked[t] * theirs;
          for (int64_t d = 0; d < width; ++d)
            all.values[d * lanes + t] = all.values[d * lanes + t] * ours + more.values[d * lanes + t] * theirs;
        }
      }
      std::copy(all.values.begin(), all.values.end(), values);  // aligned
      finish(task.sample, h, j, all.running, values, out);
    }
  }

  /// A sample of which no query sees anything.
  void see_nothing(int64_t b) {
    y_.out[b].zero_();
    y_.stats[b].zero_().select(2, 0).fill_(-INFINITY);
  }

  /// Sums over all queries need the statistics of all chunks: a pass of its own.
  void receive(const RowTask& task) {
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    TiledWork<T> work(call_, task, scratch);
    float* score = scratch.take<float>(kTileRows * call_.queries);
    float* sums = scratch.take<float>(task.end - task.begin);
    for (int64_t h = task.key_head * call_.group; h < (task.key_head + 1) * call_.group; ++h) {
      work.set_head(h);
      receive(task, work, score, sums);
      float* received = y_.received.template mutable_data_ptr<float>();
      for (int64_t i = 0; i < task.end - task.begin; ++i)
        if (const int64_t row = work.rows_of(0)[i]; row >= 0) received[row * call_.H + h] = sums[i];
    }
  }

  void receive(const RowTask& task, TiledWork<T>& work, float* score, float* sums) {
    std::fill_n(sums, task.end - task.begin, 0.f);
    alignas(64) float lse2[kTileQueries];
    for (int64_t j = 0; j < call_.query_blocks(); ++j) {
      work.begin_queries(j);
      softmax_base(call_, task.sample, work.head(), y_.stats.template const_data_ptr<float>(), 2, j, lse2);
      for (int64_t i = 0; i < work.tiles(); ++i) {
        ScoreTile tile;
        if (!work.tile(i, tile)) continue;
        work.scores(i, score);
        tile_received(tile, lse2, score, sums + i * kTileRows);
      }
    }
  }

  const TiledCall<T> call_;
  const RampOptions& options_;
  RampOutputs y_;
  std::vector<std::vector<Partial>> partials_;  // [task][head, block of queries]
  std::vector<double> ramp_sums_;               // [task]
};

}  // namespace

RampOutputs ramp_attention_tiled(const AttentionInputs& x, const RampOptions& o, bool bfloat16) {
  return bfloat16 ? Forward<at::BFloat16>(x, o).run() : Forward<float>(x, o).run();
}

}  // namespace lapse
