// The backward pass in tiles. Weights are computed again from the saved statistics; products go through brgemm. All
// gradients of a tile are kept transposed, rows by queries, as the scores are.

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/cpu.h"
#include "lapse/ops/attention/table_gradients.h"
#include "lapse/ops/attention/work.h"
#include "lapse/ops/parallel/parallel.h"

namespace lapse {
namespace {

using at::Tensor;

template <class T>
class Backward {
 public:
  Backward(const Tensor& grad_out, const Tensor& grad_ramp_sum, const AttentionInputs& x, const RampOptions& o,
           const RampOutputs& y, const Tensor& grad_lse)
      : call_(x, o), options_(o) {
    const auto type = call_.q_tensor.scalar_type();
    grad_out_ = grad_out.to(type).contiguous(), out_ = y.out.to(type).contiguous();
    grad_sum_ = grad_ramp_sum.to(at::kFloat).contiguous(), stats_ = y.stats.to(at::kFloat).contiguous();
    if (grad_lse.defined()) grad_lse_ = grad_lse.to(at::kFloat).contiguous();
    g_.q = at::empty(x.q.sizes(), call_.q_tensor.options());
    g_.k = at::empty(x.k.sizes(), call_.q_tensor.options());
    g_.v = at::empty(x.k.sizes(), call_.q_tensor.options());
    const auto wide = x.q.options().dtype(at::kFloat);
    g_.row_span = at::zeros({o.row_span ? call_.N : 0}, wide);
    g_.head_span = at::zeros({o.head_span ? call_.H : 0}, wide);
    g_.logit = o.logit ? at::zeros({call_.N, call_.H}, wide) : at::empty({0}, wide);
  }

  RampGradients run() {
    const auto& tasks = call_.plan.tasks;
    const auto n = static_cast<int64_t>(tasks.size());
    partial_q_.resize(n);
    span_sums_.resize(n), ramp_counts_.resize(n), head_sums_.resize(n);
    tables_.for_each(n, [&](int64_t i, const Tables& tables) { differentiate(i, tables); });
    for_each_task(n, [&](int64_t i) {
      if (tasks[i].chunk == 0 && tasks[i].chunks > 1) merge(i);
    });
    for_each_task(call_.B + 1, [&](int64_t b) { clear_unseen(b); });
    if (call_.spans()) sum_spans();
    g_.position = tables_.position(), g_.age_bias = tables_.age_bias();
    return g_;
  }

 private:
  using Tables = typename TableGradients<T>::Tables;

  struct Buffers {
    T *v, *kt, *grad, *grad_t, *weight, *rounded_ds, *weight_right, *line, *line_right;
    T *grad_room, *q_room;  // room for the next two
    const T *grad_right, *q_right;
    float *score, *ds, *dk, *dv, *dq, *by_age, *turned;
    float *span, *on_ramp, *logit;
    bool* begun;  // by tile of rows: dk and dv have sums already
    bool any;     // dq has
  };

  Buffers take(const TiledWork<T>& work, const RowTask& task, Scratch& scratch) const {
    const int64_t n = task.end - task.begin, w = call_.width, lanes = call_.queries;
    Buffers m{};
    for (T** x : {&m.v, &m.kt}) *x = scratch.take<T>(n * w);
    for (T** x : {&m.grad, &m.grad_t, &m.grad_room, &m.q_room}) *x = scratch.take<T>(lanes * w);
    for (T** x : {&m.weight, &m.rounded_ds, &m.weight_right, &m.line, &m.line_right})
      *x = scratch.take<T>(kTileRows * lanes);
    for (float** x : {&m.score, &m.ds}) *x = scratch.take<float>(kTileRows * lanes);
    for (float** x : {&m.dk, &m.dv}) *x = scratch.take<float>(n * w);
    m.begun = scratch.take<bool>(work.tiles());
    std::fill_n(m.begun, work.tiles(), false);
    for (float** x : {&m.dq, &m.turned}) *x = scratch.take<float>(lanes * w);
    for (float** x : {&m.span, &m.on_ramp, &m.logit}) *x = scratch.take<float>(n);
    if (call_.position != nullptr) m.by_age = scratch.take<float>(work.most_lines() * lanes);
    pack(call_.v + task.key_head * call_.D, call_.G * call_.D, work.rows_of(0), n, call_.D, m.v, n, w);
    for (int64_t i = 0; i < work.tiles(); ++i) transposed(work.k(i), kTileRows, w, m.kt + i * kTileRows * w);
    return m;
  }

  void differentiate(int64_t number, const Tables& tables) {
    const RowTask& task = call_.plan.tasks[number];
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    TiledWork<T> work(call_, task, scratch);
    Buffers m = take(work, task, scratch);
    if (task.chunks > 1) partial_q_[number].resize(call_.group * call_.query_blocks() * call_.queries * call_.width);
    span_sums_[number].assign(call_.spans() ? task.end - task.begin : 0, 0);
    for (int64_t h = task.key_head * call_.group; h < (task.key_head + 1) * call_.group; ++h) {
      work.set_head(h);
      differentiate(number, work, tables, m);
      finish_head(number, work, m);
    }
    finish_rows(task, work, m);
  }

  /// One head's share.
  void differentiate(int64_t number, TiledWork<T>& work, const Tables& tables, Buffers& m) {
    const RowTask& task = call_.plan.tasks[number];
    alignas(64) float lse2[kTileQueries], dot[kTileQueries];
    for (float* x : {m.span, m.on_ramp, m.logit}) std::fill_n(x, task.end - task.begin, 0.f);
    for (int64_t j = 0; j < call_.query_blocks(); ++j) {
      work.begin_queries(j);
      begin_queries(task, work, m, j, lse2, dot);
      for (int64_t i = 0; i < work.tiles(); ++i) rows(work, m, i, lse2, dot, tables.bias);
      if (!m.any) std::fill_n(m.dq, call_.width * work.lanes(), 0.f);
      if (work.lines() > 0)
        tables_.add_positions(work, m.by_age, m.q_right, m.dq, tables.position, m.line_right, m.line);
      finish_queries(number, work.head(), m, j);
    }
  }

  /// The operands that belong to a block of queries, and c_t = dout_t . out_t, less the gradient of the log-sum-exp.
  void begin_queries(const RowTask& task, const TiledWork<T>& work, Buffers& m, int64_t j, float* lse2,
                     float* dots) const {
    const int64_t lanes = work.lanes(), w = call_.width;
    const int64_t at = call_.query_at(task.sample, j * call_.queries, work.head()), stride = call_.H * call_.D;
    const T* grad = grad_out_.const_data_ptr<T>() + at;
    const T* out = out_.const_data_ptr<T>() + at;
    pack<T>(grad, stride, nullptr, work.valid(), call_.D, m.grad, lanes, w);
    transposed_right(m.grad, lanes, w, m.grad_t);
    m.grad_right = right(m.grad, lanes, w, m.grad_room);
    m.q_right = right(work.q(), lanes, w, m.q_room);
    const float* lse = grad_lse_.defined() ? grad_lse_.const_data_ptr<float>() + at / call_.D : nullptr;
    for (int64_t t = 0; t < lanes; ++t) {
      dots[t] = t < work.valid() ? dot_of(grad + t * stride, out + t * stride, call_.D) : 0;
      if (lse != nullptr && t < work.valid()) dots[t] -= lse[t * call_.H];
    }
    softmax_base(call_, task.sample, work.head(), stats_.const_data_ptr<float>(), 2, j, lse2);
    m.any = false;
    if (work.lines() > 0) std::fill_n(m.by_age, work.lines() * lanes, 0.f);
  }

  void rows(TiledWork<T>& work, Buffers& m, int64_t i, const float* lse2, const float* dot, float* bias) const {
    ScoreTile tile;
    if (!work.tile(i, tile)) return;
    const int64_t lanes = work.lanes(), w = call_.width, at = i * kTileRows;
    work.scores(i, m.score);
    multiply(tile.rows, lanes, w, m.v + at * w, w, m.grad_t, m.ds, false);
    TileGradients sums{m.span + at, m.on_ramp + at, call_.logit != nullptr ? m.logit + at : nullptr};
    if (tile.by_age != nullptr) sums.by_age = m.by_age;
    tile_backward(tile, lse2, dot, m.score, m.ds, sums);
    const T* weight = rounded(m.score, tile.rows * lanes, m.weight);
    const T* ds = rounded(m.ds, tile.rows * lanes, m.rounded_ds);
    multiply(tile.rows, w, lanes, weight, lanes, m.grad_right, m.dv + at * w, m.begun[i]);
    multiply(tile.rows, w, lanes, ds, lanes, m.q_right, m.dk + at * w, std::exchange(m.begun[i], true));
    multiply(w, lanes, tile.rows, m.kt + at * w, kTileRows, rounded_right(m.ds, tile.rows, lanes, m.weight_right), m.dq,
             std::exchange(m.any, true));
    if (tile.bias != nullptr) tables_.add_bias(tile, m.ds, work.head(), bias);
  }

  float scale() const { return 1 / call_.unit; }

  /// Where head h's gradients of block j of queries are among the parts of its key head.
  int64_t part_at(int64_t h, int64_t j) const {
    return (h % call_.group * call_.query_blocks() + j) * call_.queries * call_.width;
  }

  void finish_queries(int64_t number, int64_t h, const Buffers& m, int64_t j) {
    const RowTask& task = call_.plan.tasks[number];
    const int64_t lanes = call_.lanes(j), w = call_.width;
    transpose(m.dq, static_cast<int>(lanes), m.turned, static_cast<int>(w), static_cast<int>(w),
              static_cast<int>(lanes));
    if (task.chunks > 1)
      std::copy_n(m.turned, lanes * w, partial_q_[number].data() + part_at(h, j));
    else
      store_q(task.sample, h, j, m.turned);
  }

  void store_q(int64_t sample, int64_t h, int64_t j, const float* dq) {
    const int64_t first = j * call_.queries;
    T* to = g_.q.template mutable_data_ptr<T>() + call_.query_at(sample, first, h);
    store_lines(dq, call_.width, std::min<int64_t>(call_.queries, call_.K - first), call_.D, scale(),
                Lines<T>{to, call_.H * call_.D});
  }

  /// What belongs to one query head: gradients of logits and spans.
  void finish_head(int64_t number, const TiledWork<T>& work, const Buffers& m) {
    const RowTask& task = call_.plan.tasks[number];
    const int64_t n = task.end - task.begin, h = work.head();
    if (call_.logit != nullptr)
      for (int64_t i = 0; i < n; ++i)
        if (const int64_t row = work.rows_of(0)[i]; row >= 0)
          g_.logit.template mutable_data_ptr<float>()[row * call_.H + h] = m.logit[i];
    if (!call_.spans()) return;
    if (h == 0) ramp_counts_[number].assign(m.on_ramp, m.on_ramp + n);
    if (!options_.head_span) return add_to(span_sums_[number].data(), m.span, n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += m.span[i];
    head_sums_[number].push_back(static_cast<float>(sum));
  }

  void finish_rows(const RowTask& task, const TiledWork<T>& work, const Buffers& m) {
    const int64_t n = task.end - task.begin, at = task.key_head * call_.D, stride = call_.G * call_.D;
    const int64_t* index = work.rows_of(0);
    for (int64_t i = 0; i < work.tiles(); ++i)
      if (!m.begun[i])
        for (float* sum : {m.dk, m.dv}) std::fill_n(sum + i * kTileRows * call_.width, kTileRows * call_.width, 0.f);
    store_lines(m.dk, call_.width, n, call_.D, scale(),
                Lines<T>{g_.k.template mutable_data_ptr<T>() + at, stride, index});
    store_lines(m.dv, call_.width, n, call_.D, 1, Lines<T>{g_.v.template mutable_data_ptr<T>() + at, stride, index});
  }

  void merge(int64_t first) {
    const RowTask& task = call_.plan.tasks[first];
    auto& all = partial_q_[first];
    for (int64_t c = 1; c < task.chunks; ++c)
      for (size_t i = 0; i < all.size(); ++i) all[i] += partial_q_[first + c][i];
    for (int64_t h = task.key_head * call_.group; h < (task.key_head + 1) * call_.group; ++h)
      for (int64_t j = 0; j < call_.query_blocks(); ++j) store_q(task.sample, h, j, all.data() + part_at(h, j));
  }

  /// Zero gradients of sample b's rows that no query sees; b = B: of the rows that belong to no sample. Without any
  /// row, also those of its queries.
  void clear_unseen(int64_t b) {
    const int64_t line = call_.G * call_.D;
    T* dk = g_.k.template mutable_data_ptr<T>();
    T* dv = g_.v.template mutable_data_ptr<T>();
    auto clear = [&](int64_t begin, int64_t end) {
      if (begin >= end) return;
      std::memset(static_cast<void*>(dk + begin * line), 0, (end - begin) * line * sizeof(T));
      std::memset(static_cast<void*>(dv + begin * line), 0, (end - begin) * line * sizeof(T));
    };
    const int64_t* offsets = call_.offsets;
    if (b == call_.B) {
      clear(0, offsets[0]);
      clear(offsets[b], call_.N);
      return;
    }
    const PlannedRows& rows = call_.plan.rows[b];
    int64_t next = offsets[b];
    for (int64_t i = 0; i < rows.count; ++i) {
      clear(next, rows.index[i]);
      next = rows.index[i] + 1;
    }
    clear(next, offsets[b + 1]);
    if (rows.count == 0)
      std::memset(static_cast<void*>(g_.q.template mutable_data_ptr<T>() + call_.query_at(b, 0, 0)), 0,
                  call_.K * call_.H * call_.D * sizeof(T));
  }

  void sum_spans() {
    const auto ramp = static_cast<float>(options_.ramp);
    float* row_span = g_.row_span.template mutable_data_ptr<float>();
    float* head_span = g_.head_span.template mutable_data_ptr<float>();
    const float* grad_sum = grad_sum_.const_data_ptr<float>();
    for (size_t number = 0; number < call_.plan.tasks.size(); ++number) {
      const RowTask& task = call_.plan.tasks[number];
      const int64_t* index = call_.plan.rows[task.sample].index.data() + task.begin;
      const auto& sums = span_sums_[number];
      for (size_t i = 0; i < head_sums_[number].size(); ++i)
        head_span[task.key_head * call_.group + i] += head_sums_[number][i] / ramp;
      if (options_.head_span) continue;
      for (size_t i = 0; i < sums.size(); ++i) {
        if (index[i] < 0) continue;
        row_span[index[i]] += sums[i] / ramp;
        if (task.key_head == 0) row_span[index[i]] += ramp_counts_[number][i] * grad_sum[task.sample];
      }
    }
  }

  const TiledCall<T> call_;
  const RampOptions& options_;
  Tensor grad_out_, out_, grad_sum_, stats_, grad_lse_;
  RampGradients g_;
  std::vector<std::vector<float>> partial_q_;  // [task][head][K, rounded up][width], with more than one chunk
  std::vector<std::vector<float>> span_sums_, ramp_counts_, head_sums_;  // [task][row], [task][head of the group]
  TableGradients<T> tables_{call_};
};

}  // namespace

RampGradients ramp_attention_backward_tiled(const Tensor& grad_out, const Tensor& grad_ramp_sum,
                                            const AttentionInputs& x, const RampOptions& o, const RampOutputs& y,
                                            const Tensor& grad_lse, bool bfloat16) {
  return bfloat16 ? Backward<at::BFloat16>(grad_out, grad_ramp_sum, x, o, y, grad_lse).run()
                  : Backward<float>(grad_out, grad_ramp_sum, x, o, y, grad_lse).run();
}

}  // namespace lapse
