// The backward pass in tiles, a task for some rows of a sample. Queries are taken from the last block to the first:
// dS_j is the sum of dF over the queries after j, one running sum for each row. Within a block head 0 comes last, after
// the other heads have added their parts of dF.

#include <atomic>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/cpu.h"
#include "lapse/ops/attention/selective/query_gradient.h"
#include "lapse/ops/attention/selective/work.h"
#include "lapse/ops/attention/table_gradients.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kTasks = 32;  // or more, unless that makes them tiny

template <class T>
class Backward {
 public:
  Backward(const Tensor& grad_out, const Tensor& grad_memory, const AttentionInputs& x, const SelectiveOptions& o,
           const SelectiveOutputs& y)
      : call_(x, o), options_(o), dq_(heads_) {
    const auto type = heads_.q_tensor.scalar_type();
    grad_out_ = grad_out.to(type).contiguous(), out_ = y.out.to(type).contiguous();
    grad_memory_ = (grad_memory.to(at::kFloat) / o.cap).contiguous(), stats_ = y.stats.to(at::kFloat).contiguous();
    dk_ = at::empty(x.k.sizes(), heads_.q_tensor.options()), dv_ = at::empty_like(dk_);
    if (call_.form) dq_form_.emplace(*call_.form), dk_form_ = at::empty_like(call_.form->k_tensor);
  }

  SelectiveGradients run() {
    cut();
    const auto n = static_cast<int64_t>(tasks_.size());
    parts_.resize(n), parts_form_.resize(call_.form ? n : 0);
    tables_.for_each(n, [&](int64_t i, const Tables& tables) {
      differentiate(i, tables);
      merge(tasks_[i], i - tasks_[i].chunk);
    });
    clear_unseen();
    SelectiveGradients g{dq_.gradient, dk_, dv_, {}, {}, tables_.position(), tables_.age_bias()};
    if (call_.form) g.select_q = dq_form_->gradient.squeeze(2), g.select_k = dk_form_.squeeze(1);
    return g;
  }

 private:
  using Tables = typename TableGradients<T>::Tables;

  /// Once all tasks of the sample, from number `first` on, are done: adds their parts up, in their order, and frees
  /// them.
  void merge(const RowTask& task, int64_t first) {
    if (task.chunks == 1 || ++done_[task.sample] < task.chunks) return;
    dq_.merge(parts_, first, task.chunks, task.sample);
    if (call_.form) dq_form_->merge(parts_form_, first, task.chunks, task.sample);
  }

  void cut() {
    int64_t all = 0;
    for (int64_t b = 0; b < heads_.B; ++b) all += call_.tiles(b);
    const int64_t tiles = std::max<int64_t>(2, (all + kTasks - 1) / kTasks);
    for (int64_t b = 0; b < heads_.B; ++b) {
      const int64_t n = call_.tiles(b), chunks = (n + tiles - 1) / tiles;
      for (int64_t c = 0; c < chunks; ++c)
        tasks_.push_back({b, 0, n * c / chunks * kTileRows, n * (c + 1) / chunks * kTileRows, c, chunks});
    }
    done_ = std::vector<std::atomic<int64_t>>(heads_.B);
  }

  /// The rows of one key head, or of the form that selects, and their gradients.
  struct Rows {
    T *k, *kt, *v;
    float *dk, *dv;
  };
  /// Without values for the form.
  Rows take(const TiledCall<T>& call, const RowTask& task, int64_t key_head, Scratch& scratch) const {
    const int64_t n = task.end - task.begin, w = call.width, stride = call.G * call.D, at = key_head * call.D;
    const int64_t* index = call.plan.rows[task.sample].index.data() + task.begin;
    Rows rows{scratch.take<T>(n * w), scratch.take<T>(n * w), nullptr, scratch.take<float>(n * w), nullptr};
    pack(call.k + at, stride, index, n, call.D, rows.k, n, w);
    for (int64_t i = 0; i < n; i += kTileRows) transposed(rows.k + i * w, kTileRows, w, rows.kt + i * w);
    std::fill_n(rows.dk, n * w, 0.f);
    if (&call != &heads_) return rows;
    rows.v = scratch.take<T>(n * w), rows.dv = scratch.take<float>(n * w);
    pack(call.v + at, stride, index, n, call.D, rows.v, n, w);
    std::fill_n(rows.dv, n * w, 0.f);
    return rows;
  }

  struct Buffers {
    std::vector<Rows> keys;  // of each key head
    Rows form;
    float *selects, *masking,
        *sum;               // of every tile of rows: scores of what selects, F, and the gradient of F's negative
    float *before, *later;  // [block of queries][row]: F before the block; [row]: dF of the blocks after
    float *score, *ds, *dq, *turned, *by_age;
    T *grad, *grad_t, *grad_room, *q_room, *weight, *rounded_ds, *right, *line;
    const T *grad_right, *q_right;
    alignas(64) float lse2[kTileQueries], dot[kTileQueries], memory[kTileQueries];
  };

  Buffers take(const RowTask& task, Scratch& scratch) const {
    const int64_t n = task.end - task.begin, lanes = heads_.queries;
    const int64_t w = call_.form ? std::max(heads_.width, call_.form->width) : heads_.width;
    Buffers m;
    for (int64_t g = 0; g < heads_.G; ++g) m.keys.push_back(take(heads_, task, g, scratch));
    if (call_.form) m.form = take(*call_.form, task, 0, scratch);
    for (float** x : {&m.selects, &m.masking, &m.sum}) *x = scratch.take<float>(n * lanes);
    m.before = scratch.take<float>(heads_.query_blocks() * n), m.later = scratch.take<float>(n);
    for (float** x : {&m.score, &m.ds}) *x = scratch.take<float>(kTileRows * lanes);
    for (float** x : {&m.dq, &m.turned}) *x = scratch.take<float>(lanes * w);
    for (T** x : {&m.grad, &m.grad_t, &m.grad_room, &m.q_room}) *x = scratch.take<T>(lanes * w);
    for (T** x : {&m.weight, &m.rounded_ds, &m.right, &m.line}) *x = scratch.take<T>(kTileRows * lanes);
    m.by_age = heads_.position != nullptr ? scratch.take<float>(most_lines() * lanes) : nullptr;
    return m;
  }

  /// Of by_age: TiledWork's.
  int64_t most_lines() const { return 2 * heads_.queries + heads_.ages + kTileRows; }

  void differentiate(int64_t number, const Tables& tables) {
    const RowTask& task = tasks_[number];
    Scratch& scratch = Scratch::of_thread();
    scratch.release();
    const auto [from, to] = call_.blocks(task.sample, task.begin, task.end);
    Buffers m = take(task, scratch);
    TiledWork<T> work(heads_, task, scratch, m.keys[0].k);
    std::optional<TiledWork<T>> form;
    if (call_.form) form.emplace(*call_.form, task, scratch, m.form.k);
    TiledWork<T>& selects = form ? *form : work;
    sum_before(task, selects, from, to, m);
    auto part = dq_.part(from, to, task.chunks == 1);
    auto part_form = form ? dq_form_->part(from, to, task.chunks == 1) : typename QueryGradient<T>::Part();
    std::fill_n(m.later, task.end - task.begin, 0.f);
    for (int64_t j = to; j-- > from;) {
      work.set_head(0, m.keys[0].k);
      selects.begin_queries(j);
      mask(task, selects, j, m);
      for (int64_t h = heads_.H; h-- > 0;) {
        work.set_head(h, m.keys[h / heads_.group].k);
        work.begin_queries(j);
        begin_queries(task, work, h, j, m);
        for (int64_t i = 0; i < work.tiles(); ++i) rows(task, work, i, m, tables.bias);
        if (work.lines() > 0) tables_.add_positions(work, m.by_age, m.q_right, m.dq, tables.position, m.right, m.line);
        dq_.put(part, task.sample, j, h, m.dq, m.turned);
      }
      if (!form) continue;
      m.q_right = right(form->q(), form->lanes(), call_.form->width, m.q_room);
      std::fill_n(m.dq, call_.form->width * form->lanes(), 0.f);
      for (int64_t i = 0; i < form->tiles(); ++i) form_rows(task, *form, i, m);
      dq_form_->put(part_form, task.sample, j, 0, m.dq, m.turned);
    }
    if (task.chunks == 1) dq_.clear(task.sample, part.from, part.to);
    if (task.chunks == 1 && form) dq_form_->clear(task.sample, part.from, part.to);
    parts_[number] = std::move(part);
    if (form) parts_form_[number] = std::move(part_form);
    finish(task, m);
  }

  /// F of each row before each block of queries.
  void sum_before(const RowTask& task, TiledWork<T>& selects, int64_t from, int64_t to, Buffers& m) const {
    const int64_t n = task.end - task.begin;
    float* sums = m.later;
    call_.masking_before(task.sample, task.begin, task.end, sums);
    for (int64_t j = from; j < to; ++j) {
      std::copy_n(sums, n, m.before + j * n);
      if (j + 1 == to) return;
      selects.begin_queries(j);
      for (int64_t i = 0; i < selects.tiles(); ++i) {
        ScoreTile tile;
        if (!selects.tile(i, tile)) continue;
        selects.scores(i, m.score);
        selective_tile_sums(call_.tile(tile, task.sample, task.begin + i * kTileRows), m.score, sums + i * kTileRows);
      }
    }
  }

  /// The scores of what selects, and F, for all rows.
  void mask(const RowTask& task, TiledWork<T>& selects, int64_t j, Buffers& m) const {
    const int64_t n = task.end - task.begin, size = kTileRows * selects.lanes();
    for (int64_t i = 0; i < selects.tiles(); ++i) {
      ScoreTile tile;
      if (!selects.tile(i, tile)) continue;
      selects.scores(i, m.selects + i * size);
      selective_tile_masking(call_.tile(tile, task.sample, task.begin + i * kTileRows), m.selects + i * size,
                             m.before + j * n + i * kTileRows, m.masking + i * size, nullptr);
      std::fill_n(m.sum + i * size, size, 0.f);
    }
  }

  /// The operands that belong to a block of queries, and c_t = dout_t . out_t.
  void begin_queries(const RowTask& task, const TiledWork<T>& work, int64_t h, int64_t j, Buffers& m) const {
    const int64_t lanes = work.lanes(), w = heads_.width, query = j * heads_.queries;
    const int64_t at = heads_.query_at(task.sample, query, h), stride = heads_.H * heads_.D;
    const T* grad = grad_out_.template const_data_ptr<T>() + at;
    const T* out = out_.template const_data_ptr<T>() + at;
    pack<T>(grad, stride, nullptr, work.valid(), heads_.D, m.grad, lanes, w);
    transposed_right(m.grad, lanes, w, m.grad_t);
    m.grad_right = right(m.grad, lanes, w, m.grad_room);
    m.q_right = right(work.q(), lanes, w, m.q_room);
    const float* memory = grad_memory_.template const_data_ptr<float>() + task.sample * heads_.K + query;
    for (int64_t t = 0; t < lanes; ++t) {
      m.dot[t] = t < work.valid() ? dot_of(grad + t * stride, out + t * stride, heads_.D) : 0;
      m.memory[t] = t < work.valid() ? memory[t] : 0;
    }
    softmax_base(heads_, task.sample, h, stats_.template const_data_ptr<float>(), 1, j, m.lse2);
    std::fill_n(m.dq, w * lanes, 0.f);
    if (work.lines() > 0) std::fill_n(m.by_age, work.lines() * lanes, 0.f);
  }

  void rows(const RowTask& task, TiledWork<T>& work, int64_t i, Buffers& m, float* bias) const {
    ScoreTile tile;
    if (!work.tile(i, tile)) return;
    const int64_t lanes = work.lanes(), w = heads_.width, at = i * kTileRows, size = kTileRows * lanes;
    const int64_t h = work.head();
    const Rows& r = m.keys[h / heads_.group];
    const bool selects = h == 0 && !call_.form;
    if (selects)
      std::copy_n(m.selects + i * size, tile.rows * lanes, m.score);
    else
      work.scores(i, m.score);
    multiply(tile.rows, lanes, w, r.v + at * w, w, m.grad_t, m.ds, false);
    tile.masking = m.masking + i * size;
    TileGradients sums{nullptr, nullptr, nullptr};
    sums.masking = m.sum + i * size;
    if (tile.by_age != nullptr && !selects) sums.by_age = m.by_age;
    tile_backward(tile, m.lse2, m.dot, m.score, m.ds, sums);
    multiply(tile.rows, w, lanes, rounded(m.score, tile.rows * lanes, m.weight), lanes, m.grad_right, r.dv + at * w,
             true);
    if (selects) select(task, tile, i, m);
    multiply(tile.rows, w, lanes, rounded(m.ds, tile.rows * lanes, m.rounded_ds), lanes, m.q_right, r.dk + at * w,
             true);
    multiply(w, lanes, tile.rows, r.kt + at * w, kTileRows, rounded_right(m.ds, tile.rows, lanes, m.right), m.dq, true);
    if (tile.bias != nullptr) tables_.add_bias(tile, m.ds, h, bias);
    if (tile.by_age == nullptr || !selects) return;
    for (int64_t l = 0; l < tile.rows; ++l)  // not before F's share is there
      if (tile.age_at[l] >= 0) std::memcpy(m.by_age + tile.age_at[l] * lanes, m.ds + l * lanes, lanes * sizeof(float));
  }

  /// Adds the gradient through F to that of the logits that select.
  void select(const RowTask& task, const ScoreTile& tile, int64_t i, Buffers& m) const {
    const int64_t size = kTileRows * tile.queries;
    selective_tile_backward(call_.tile(tile, task.sample, task.begin + i * kTileRows), m.selects + i * size,
                            m.masking + i * size, m.sum + i * size, m.memory, m.later + i * kTileRows, m.ds);
  }

  void form_rows(const RowTask& task, TiledWork<T>& form, int64_t i, Buffers& m) const {
    ScoreTile tile;
    if (!form.tile(i, tile)) return;
    const int64_t lanes = form.lanes(), w = call_.form->width, at = i * kTileRows;
    std::fill_n(m.ds, tile.rows * lanes, 0.f);
    select(task, tile, i, m);
    multiply(tile.rows, w, lanes, rounded(m.ds, tile.rows * lanes, m.rounded_ds), lanes, m.q_right, m.form.dk + at * w,
             true);
    multiply(w, lanes, tile.rows, m.form.kt + at * w, kTileRows, rounded_right(m.ds, tile.rows, lanes, m.right), m.dq,
             true);
  }

  void finish(const RowTask& task, const Buffers& m) {
    const int64_t* index = call_.rows(task.sample).index.data() + task.begin;
    auto put = [&](const TiledCall<T>& call, const float* lines, int64_t key_head, float factor, Tensor& to) {
      store_lines(lines, call.width, task.end - task.begin, call.D, factor,
                  Lines<T>{to.mutable_data_ptr<T>() + key_head * call.D, call.G * call.D, index});
    };
    for (int64_t g = 0; g < heads_.G; ++g) {
      put(heads_, m.keys[g].dk, g, 1 / call_.unit, dk_);
      put(heads_, m.keys[g].dv, g, 1, dv_);
    }
    if (call_.form) put(*call_.form, m.form.dk, 0, 1 / call_.form->unit, dk_form_);
  }

  void clear_unseen() {
    for (int64_t b = 0; b < heads_.B; ++b) {
      if (call_.tiles(b) > 0) continue;
      dq_.clear(b, heads_.query_blocks(), heads_.query_blocks());
      if (call_.form) dq_form_->clear(b, heads_.query_blocks(), heads_.query_blocks());
    }
    auto clear = [&](Tensor& x, int64_t begin, int64_t end) {
      const int64_t line = x.numel() / x.size(0);
      std::memset(static_cast<void*>(x.mutable_data_ptr<T>() + begin * line), 0, (end - begin) * line * sizeof(T));
    };
    call_.for_unseen([&](int64_t begin, int64_t end) {
      clear(dk_, begin, end), clear(dv_, begin, end);
      if (call_.form) clear(dk_form_, begin, end);
    });
  }

  const SelectiveCall<T> call_;
  const TiledCall<T>& heads_ = call_.heads;
  const SelectiveOptions& options_;
  std::vector<RowTask> tasks_;  // the chunks of a sample follow each other; of all heads
  Tensor grad_out_, out_, grad_memory_, stats_;
  Tensor dk_, dv_, dk_form_;
  QueryGradient<T> dq_;
  std::optional<QueryGradient<T>> dq_form_;
  std::vector<std::atomic<int64_t>> done_;                           // [sample]: how many of its tasks
  std::vector<typename QueryGradient<T>::Part> parts_, parts_form_;  // [task]
  TableGradients<T> tables_{heads_};
};

}  // namespace

SelectiveGradients selective_attention_backward_tiled(const Tensor& grad_out, const Tensor& grad_memory,
                                                      const AttentionInputs& x, const SelectiveOptions& o,
                                                      const SelectiveOutputs& y, bool bfloat16) {
  return bfloat16 ? Backward<at::BFloat16>(grad_out, grad_memory, x, o, y).run()
                  : Backward<float>(grad_out, grad_memory, x, o, y).run();
}

}  // namespace lapse
