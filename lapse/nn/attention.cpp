#include "lapse/nn/attention.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lapse/memory/samples.h"
#include "lapse/nn/pairs.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/linear.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

// Rows that no query reads are skipped by attention anyway. Token by token they are looked for once this share of the
// table is new, so that a stream that loses one row per token does not copy its memory at every token; where there is
// room, once that is full.
constexpr int64_t kNewShare = 8;

// Streams that are read token by token get room for so many more tokens, or more.
constexpr int64_t kRoom = 16;

/// Columns of every table, which a method does not describe.
bool is_own(const std::string& column) {
  constexpr const char* kOwn[] = {"time", "kind", "until", "hidden", "key", "value"};
  return std::find(std::begin(kOwn), std::end(kOwn), column) != std::end(kOwn);
}

/// What a table that has rows stores.
Stored stored_in(const MemoryTable& table) {
  return table.columns().count("key") ? Stored::projections : Stored::inputs;
}

/// |C_t| of each query: [B, K].
Tensor memory_sizes(const MemoryTable& table, const Tensor& first, const Tensor& until, const Tensor& start,
                    int64_t K) {
  const Tensor sample = table.sample(), begin = of_rows(table, start);
  const Tensor enter = (first - begin).clamp(0, K);
  constexpr int64_t kFar = int64_t{1} << 60;  // until may be for ever, or never
  const Tensor leave = at::maximum((until.clamp(-kFar, kFar) - begin).clamp(0, K), enter);
  const int64_t cells = table.samples() * (K + 1);
  const Tensor change = counts_of(sample * (K + 1) + enter, cells) - counts_of(sample * (K + 1) + leave, cells);
  return change.view({table.samples(), K + 1}).cumsum(1).narrow(1, 0, K);
}

}  // namespace

Attention::Attention(const MethodOptions& method, const ModelShape& shape, int64_t layer, const AttentionOptions& o,
                     Norm before, Random& random)
    : shape_(shape),
      dropout_(o.dropout),
      method_(method.make(shape, layer, random)),
      w_(shape, o, random),
      before_(std::move(before)) {
  if (shape.normed_heads) query_norm_ = Norm(shape.head_dim, "rms"), key_norm_ = Norm(shape.head_dim, "rms");
}

void Attention::name(NamedTensors& parameters) {
  w_.name("", parameters);
  query_norm_.name("query_norm", parameters);
  key_norm_.name("key_norm", parameters);
}

Attention::Projected Attention::project(const Tensor& h, bool query) const {
  const Tensor x = before_(h);
  std::vector<Tensor> weights = {w_.key.weight, w_.value.weight};
  if (query) weights.push_back(w_.query.weight);
  const auto made = lapse::linear(x, weights);
  return {x, query ? made[2] : Tensor(), made[0], made[1]};
}

Columns Attention::described(const Tensor& x) const {
  Columns columns = method_->describe(x);
  for (const auto& column : columns)
    TORCH_CHECK(!is_own(column.first), "a method describes rows by a column '", column.first,
                "', which every memory table has; give it another name");
  return columns;
}

Columns Attention::columns(const Tensor& h, const Tensor& time, const Tensor& kind) const {
  Columns columns = method_->state(time.sizes(), h.options().requires_grad(false));
  columns["time"] = time, columns["kind"] = kind, columns["hidden"] = h;
  return columns;
}

Columns Attention::columns(const Tensor& h, const Tensor& time, const Tensor& kind, const Projected& own,
                           const Padding& padding) const {
  Columns columns = method_->state(time.sizes(), h.options().requires_grad(false));
  columns["time"] = time, columns["kind"] = kind;
  if (method_->pools()) columns["hidden"] = h;
  const int64_t n = time.numel();
  Columns described = this->described(reshaped(own.x, {own.x.size(0) * own.x.size(1), shape_.width}));
  if (padding)
    for (auto& [name, values] : described) values = padding.restored(values.unsqueeze(0)).flatten(0, 1);
  columns["until"] = reshaped(
      method_->until({reshaped(time, {n}), reshaped(kind, {n}), described, Stored::projections}), time.sizes());
  for (const auto& [name, values] : described) {
    c10::SmallVector<int64_t, 4> shape(values.sizes());
    shape[0] = time.size(1), shape.insert(shape.begin(), time.size(0));
    columns[name] = reshaped(values, shape);
  }
  const auto type = w_.bfloat16() ? at::kBFloat16 : h.scalar_type();
  columns["key"] = padding.restored(as(key_norm_(w_.heads(own.key)), type));
  columns["value"] = padding.restored(as(w_.heads(own.value), type));
  return columns;
}

void Attention::pool(LayerPass& pass, int64_t length) const {
  if (!method_->pools()) return;
  const PooledRows pooled = method_->pool(pass.table, pass.times.start_on_host(), length);
  if (!pooled.hidden.defined()) return;
  const Tensor h = pooled.hidden.unsqueeze(0), time = pooled.time.unsqueeze(0);
  const Tensor kind = at::full_like(time, static_cast<int64_t>(RowKind::pooled), at::kByte);
  Columns rows =
      pass.stored == Stored::inputs ? columns(h, time, kind) : columns(h, time, kind, project(h, /*query=*/false));
  for (auto& [name, values] : rows) values = values.squeeze(0);
  pass.table.insert(pooled.sample, rows);
}

Rows Attention::rows(const MemoryTable& table, Stored stored, int64_t fresh, bool bfloat16,
                     const Padding& padding) const {
  Columns described;
  for (const auto& column : table.columns())
    if (!is_own(column.first)) described.insert(column);
  if (stored == Stored::projections) {
    Rows rows{table, table.column("key"), table.column("value"), table.column("until"), std::move(described), stored};
    rows.until = method_->until_among(rows);
    return rows;
  }
  const ChosenRows chosen = padding.rows(table);
  const Tensor x = before_(chosen.of(table.column("hidden")));
  LinearOptions options{.bfloat16 = bfloat16};
  if (!before_.defined() && fresh > 0)  // else the norm learns from all rows
    for (int64_t b = 0, end = 0; b < table.samples(); ++b) {
      end += table.rows_of(b) - padding.of(b);
      options.gradient_rows.emplace_back(end - (fresh - padding.of(b)), end);
    }
  const auto projected = lapse::linear(x, {w_.key.weight, w_.value.weight}, options);
  for (const auto& [name, values] : this->described(x)) described[name] = chosen.among_zeros(values);
  Rows rows{table,
            chosen.among_zeros(key_norm_(w_.heads(projected[0]))),
            chosen.among_zeros(w_.heads(projected[1])),
            {},
            std::move(described),
            stored};
  rows.until = method_->until(rows.view());
  rows.until = method_->until_among(rows);
  return rows;
}

Tensor Attention::alive(const MemoryTable& table, const Tensor& next) const {
  if (table.rows() == 0) return at::ones({0}, next.options().dtype(at::kBool));
  at::NoGradGuard no_grad;
  return method_->weightless_from(rows(table, stored_in(table))) > of_rows(table, next);
}

Columns Attention::tell(const MemoryTable& table) const {
  if (table.rows() == 0) return {};
  at::NoGradGuard no_grad;
  return method_->tell(rows(table, stored_in(table)));
}

void Attention::begin(MemoryTable& table, int64_t n, Stored stored) const {
  if (n == 0) return;
  at::NoGradGuard no_grad;
  const auto real = w_.query.weight.options().dtype(w_.bfloat16() ? at::kFloat : w_.query.weight.scalar_type());
  const Tensor slots = at::tensor(method_->initial_slots(), at::kLong);
  const auto kinds = [](int64_t count, RowKind kind) {
    return at::full({count}, static_cast<int64_t>(kind), at::kByte);
  };
  const auto of_all = [&](const Tensor& row) { return sent(row, real.device()).repeat({table.samples(), 1}); };
  const Tensor time = of_all(lapse::cat({slots, at::arange(-n, 0, at::kLong)}));
  const Tensor kind = of_all(lapse::cat({kinds(slots.size(0), RowKind::pooled), kinds(n, RowKind::start)}));
  const Tensor h = at::zeros({table.samples(), time.size(1), shape_.width}, real.requires_grad(false));
  table.append(stored == Stored::inputs ? columns(h, time, kind) : columns(h, time, kind, project(h, /*query=*/false)));
}

MemoryTable Attention::projected(const MemoryTable& inputs) const {
  if (inputs.rows() == 0) return MemoryTable(inputs.samples());
  at::NoGradGuard no_grad;
  const Tensor h = inputs.column("hidden").unsqueeze(0);
  Columns columns = this->columns(h, inputs.time().unsqueeze(0), inputs.kind().unsqueeze(0), project(h, false));
  for (auto& [name, values] : columns) values = inputs.columns().count(name) ? inputs.column(name) : values.squeeze(0);
  return MemoryTable::restore(inputs.offsets(), std::move(columns));
}

Reading Attention::read(const Tensor& h, const Projected& own, LayerPass& pass, const Rows& rows) const {
  const bool stored = pass.stored == Stored::projections, rounded = pass.options.bfloat16 || w_.bfloat16();
  const Tensor x = stored ? own.x : before_(h);
  const Tensor q = query_norm_(w_.heads(stored ? own.query : w_.query(x, pass.options.bfloat16)));
  Query query{pass.padding.restored(x), pass.padding.restored(q), pass.times.start, pass.ages.position,
              pass.options.lengths};
  query.age_bias = pass.ages.bias;
  query.uniform = pass.draws.uniform;
  if (dropout_ > 0 && pass.draws.seed) {
    query.dropout = dropout_;
    query.seed = *pass.draws.seed;
  }
  std::optional<Rows> lower;
  if (rounded) {
    for (Tensor* x : {&query.q, &query.position})
      if (x->defined()) *x = as(*x, at::kBFloat16);
    if (rows.key.scalar_type() != at::kBFloat16 || rows.value.scalar_type() != at::kBFloat16) {
      lower.emplace(rows);
      for (Tensor* x : {&lower->key, &lower->value}) *x = as(*x, at::kBFloat16);
    }
  }
  const Rows& all = lower ? *lower : rows;
  if (pass.options.pairs != Pairs::none) pass.report.pairs = pairs_of(*method_, query, all, pass.options.pairs);
  return method_->read(query, all);
}

Tensor Attention::operator()(const Tensor& h, LayerPass& pass) {
  const int64_t K = pass.times.time.size(1);
  const Projected own = pass.stored == Stored::projections ? project(h, /*query=*/true) : Projected();
  remember(h, own, pass);
  Rows rows = this->rows(pass.table, pass.stored, K, pass.options.bfloat16, pass.padding);
  const Tensor ended = pass.times.ended(pass.table);
  if (ended.defined()) rows.until = at::minimum(rows.until, ended);
  Reading reading;
  // A dropped layer remembers all the same; what the method writes into its columns follows from reading.
  if (!pass.draws.dropped || !method_->state({0}, h.options()).empty()) {
    at::AutoGradMode gradients(at::GradMode::is_enabled() && !pass.draws.dropped);
    reading = read(h, own, pass, rows);
  }
  Tensor cut = settle(reading, pass, rows, ended.defined());
  Tensor result;
  if (!pass.draws.dropped) {
    pass.cost = reading.cost;
    const Tensor attended = pass.padding.removed(
        reshaped(as(reading.out, h.scalar_type()), {pass.table.samples(), K, w_.out.weight.size(1)}));
    result = w_.out(pass.options.at_places(attended), pass.options.bfloat16);
  }
  if (pass.options.rows)
    pass.report.rows = {
        pass.table.time(), pass.table.kind(),  method_->first(rows.view()), method_->weightless_from(rows),
        std::move(cut),    method_->tell(rows)};
  forget(pass, rows, ended, K);
  return result;
}

void Attention::remember(const Tensor& h, const Projected& own, LayerPass& pass) const {
  const bool stored = pass.stored == Stored::projections;
  MemoryTable& table = pass.table;
  const BlockTimes& times = pass.times;
  const int64_t K = times.time.size(1);
  table.reset(times.begun);
  if (stored && K == 1 && !forgets_at_once(pass) && !at::GradMode::is_enabled() && table.samples() > 1 &&
      table.room() == 0)
    table.reserve(kRoom);
  const Tensor all = stored && !method_->pools() ? h : pass.padding.restored(h);  // `hidden`, if the table has it
  table.append(stored ? columns(all, times.time, times.kind, own, pass.padding) : columns(all, times.time, times.kind));
  pool(pass, K);
}

Tensor Attention::settle(const Reading& reading, LayerPass& pass, Rows& rows, bool ended) const {
  for (const auto& [name, values] : reading.state) {
    pass.table.replace(name, values);
    rows.described[name] = values;
  }
  Tensor cut;
  if (reading.until.defined()) {
    if (pass.options.rows) cut = reading.until < rows.until;
    rows.until = reading.until;
  }
  if (pass.stored == Stored::projections && (reading.until.defined() || ended)) pass.table.replace("until", rows.until);
  return cut;
}

bool Attention::forgets_at_once(const LayerPass& pass) const {
  return pass.options.exact || pass.options.observe || method_->one_by_one();
}

void Attention::forget(LayerPass& pass, const Rows& rows, const Tensor& ended, int64_t K) const {
  at::NoGradGuard no_grad;
  MemoryTable& table = pass.table;
  table.detach();
  if (!forgets_at_once(pass) && K == 1 && (table.room() > 0 || table.unsifted() * kNewShare < table.rows())) return;
  const Tensor next = of_rows(table, shifted(pass.times.start, K));
  Tensor kept = method_->released(rows.until, pass.stored) > next;
  if (ended.defined()) kept = at::logical_and(kept, ended > next);
  if (pass.options.observe) report(pass, rows, kept, K);
  pass.kept = std::move(kept);
}

void Attention::report(LayerPass& pass, const Rows& rows, const Tensor& kept, int64_t K) const {
  const MemoryTable& table = pass.table;
  LayerReport& report = pass.report;
  report.time = table.time(), report.kind = table.kind(), report.until = method_->weightless_from(rows);
  report.sizes = memory_sizes(table, method_->first(rows.view()), report.until, pass.times.start, K);
  const Tensor& lengths = pass.options.lengths;
  const Tensor padding = lengths.defined() ? at::arange(K, lengths.options()) >= lengths.unsqueeze(1) : Tensor();
  const Tensor sizes = padding.defined() ? report.sizes.masked_fill(padding, 0) : report.sizes;
  const Tensor start = of_rows(table, pass.times.start);
  const Tensor recent = at::logical_and(table.time() >= start, is_token(table.kind()));
  // Without the rows that could have gone before the block and have yet to be released.
  Tensor readable = at::logical_or(method_->released(rows.until, pass.stored) > start, recent);
  if (padding.defined()) readable = at::logical_and(readable, table.time() < start + of_rows(table, lengths));
  const Tensor largest = at::constant_pad_nd(sizes.flatten(), {0, 1}).max();  // 0 where there are no queries
  const Tensor gone = at::logical_and(readable, at::logical_not(kept));
  const Tensor queries =
      padding.defined() ? at::logical_not(padding).sum() : at::full({}, sizes.numel(), pass.times.start.options());
  report.counts = at::stack({sizes.sum(), largest, queries, readable.sum(), gone.sum()});
  const Tensor own_rows = places_of(recent, table.samples() * K);
  for (const auto& [name, values] : method_->tell(rows)) {
    const Tensor own = values.detach().index_select(0, own_rows).view({table.samples(), K});
    report.told[name] = padding.defined() ? own.masked_fill(padding, std::numeric_limits<double>::quiet_NaN()) : own;
  }
}

}  // namespace lapse
