#include "lapse/model/layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lapse/model/initialise.h"
#include "lapse/ops/few_rows.h"
#include "lapse/ops/linear.h"
#include "lapse/ops/scratch.h"

namespace lapse {
namespace {

using at::Tensor;

// Outside training dead rows are skipped by attention anyway. Token by token they are looked for once this share of the
// table is new, so that a stream that loses one row per token does not copy its memory at every token.
constexpr int64_t kNewShare = 8;

/// x in another type. Not `to` alone, which asks libtorch's dispatcher even where nothing is to be done.
Tensor as(const Tensor& x, at::ScalarType type) { return x.scalar_type() == type ? x : x.to(type); }

/// |C_t| of each query: [B, K], or [n] without padding.
Tensor memory_sizes(const MemoryTable& table, const Ages& ages, const Tensor& start, int64_t K, const Tensor& lengths) {
  const Tensor sample = table.sample();
  const Tensor made = table.time() - start.index_select(0, sample);  // relative to the block
  const Tensor enter = (made + ages.first).clamp(0, K);
  // An age may be "for ever": clamp before adding.
  const Tensor leave = at::maximum((made + 1 + ages.last.clamp_max(int64_t{1} << 50)).clamp(0, K), enter);
  const int64_t cells = table.samples() * (K + 1);
  const Tensor change =
      at::bincount(sample * (K + 1) + enter, {}, cells) - at::bincount(sample * (K + 1) + leave, {}, cells);
  const Tensor sizes = change.view({table.samples(), K + 1}).cumsum(1).narrow(1, 0, K);
  return lengths.defined() ? sizes.masked_select(at::arange(K, at::kLong) < lengths.unsqueeze(1)) : sizes;
}

}  // namespace

Tensor BlockOptions::wanted(const Tensor& x) const {
  return places.defined() ? x.flatten(0, 1).index_select(0, places) : x;
}

void LayerReport::join(const LayerReport& next) {
  memory_sum += next.memory_sum, queries += next.queries;
  memory_max = std::max(memory_max, next.memory_max);
  deleted = next.deleted;
  time = next.time, last = next.last;
  for (auto& [name, values] : told) values = at::cat({values, next.told.at(name)}, 1);
}

Layer::Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, int64_t number,
             Random& random)
    : config_(config),
      shape_(shape),
      method_(method.make(shape, number, random)),
      query_(linear_weight(shape.heads * shape.head_dim, config.width, config.initialisation, random)),
      key_(linear_weight(shape.heads * shape.head_dim, config.width, config.initialisation, random)),
      value_(linear_weight(shape.heads * shape.head_dim, config.width, config.initialisation, random)),
      out_(linear_weight(config.width, shape.heads * shape.head_dim, config.initialisation, random)),
      norm1_(config.width, config.norm_kind),
      norm2_(config.width, config.norm_kind),
      feed_forward_(config, random) {
  if (config.norm == "pre") out_.detach().div_(std::sqrt(2.0 * config.layers));
  if (config.normed_heads) query_norm_ = Norm(shape.head_dim, "rms"), key_norm_ = Norm(shape.head_dim, "rms");
}

NamedTensors Layer::parameters() {
  NamedTensors all = {{"query", &query_}, {"key", &key_}, {"value", &value_}, {"out", &out_}};
  query_norm_.name("query_norm", all);
  key_norm_.name("key_norm", all);
  norm1_.name("norm1", all);
  feed_forward_.name(all);
  norm2_.name("norm2", all);
  for (auto& parameter : method_->parameters()) all.push_back(parameter);
  return all;
}

void Layer::to_bfloat16() {
  auto all = feed_forward_.matrices();
  all.insert(all.end(), {&query_, &key_, &value_, &out_});
  for (Tensor* matrix : all)
    if (matrix->defined()) *matrix = matrix->detach().to(at::kBFloat16);
}

bool Layer::bfloat16() const { return key_.scalar_type() == at::kBFloat16; }

Tensor Layer::normed(const Tensor& h) const { return config_.norm == "pre" ? norm1_(h) : h; }

Layer::Projected Layer::project(const Tensor& h, bool query) const {
  const auto B = h.size(0), K = h.size(1);
  Projected own{normed(h)};
  const auto shape = {B, K, shape_.heads, shape_.head_dim};
  if (few_rows(own.x)) {
    auto made = [&](Tensor& y) { return (y = at::empty(shape, h.options())).mutable_data_ptr<float>(); };
    const FewRowsProduct key{key_, made(own.key)}, value{value_, made(own.value)};
    const auto* x = own.x.const_data_ptr<float>();
    if (query)
      multiply_few_rows(x, B * K, shape_.width, {key, value, {query_, made(own.query)}});
    else
      multiply_few_rows(x, B * K, shape_.width, {key, value});
    return own;
  }
  std::vector<Tensor> weights = {key_, value_};
  if (query) weights.push_back(query_);
  const auto projected = lapse::linear(own.x, weights);
  own.key = projected[0].view(shape), own.value = projected[1].view(shape);
  if (query) own.query = projected[2].view(shape);
  return own;
}

Columns Layer::columns(const Tensor& h, const Projected& own, bool training) const {
  const auto B = h.size(0), K = h.size(1);
  Columns columns = method_->state({B, K}, h.options().requires_grad(false));
  if (training || method_->keeps_hidden()) columns["hidden"] = h;
  if (training) return columns;
  for (auto& [name, values] : method_->describe(own.x.reshape({B * K, shape_.width}))) {
    auto shape = values.sizes().vec();
    shape[0] = K;
    shape.insert(shape.begin(), B);
    columns[name] = values.view(shape);
  }
  const auto type = bfloat16() ? at::kBFloat16 : h.scalar_type();
  columns["key"] = as(key_norm_(own.key), type), columns["value"] = as(own.value, type);
  return columns;
}

Columns Layer::columns(const Tensor& h, bool training) const {
  return columns(h, training ? Projected() : project(h, /*query=*/false), training);
}

void Layer::pool(MemoryTable& table, const Tensor& start, int64_t K, bool training) const {
  const PooledRows pooled = method_->pool(table, start, K);
  if (!pooled.hidden.defined()) return;
  Columns rows = columns(pooled.hidden.unsqueeze(0), training);
  for (auto& [name, values] : rows) values = values.squeeze(0);
  rows["time"] = pooled.time;
  table.insert(pooled.sample, rows);
}

Rows Layer::rows(const MemoryTable& table, int64_t fresh, bool bfloat16) const {
  Columns described = table.columns();
  for (const char* own : {"time", "hidden", "key", "value"}) described.erase(own);
  if (table.columns().count("key")) return {table, table.column("key"), table.column("value"), described, false};
  const Tensor x = normed(table.column("hidden"));
  LinearOptions options{.bfloat16 = bfloat16};
  if (config_.norm == "post" && fresh > 0)  // else norm1 learns from all rows
    for (int64_t b = 0; b < table.samples(); ++b) {
      const int64_t end = table.first_row(b + 1);
      options.gradient_rows.emplace_back(end - fresh, end);
    }
  const auto projected = lapse::linear(x, {key_, value_}, options);
  described.merge(method_->describe(x));
  const auto shape = {table.rows(), shape_.heads, shape_.head_dim};
  return {table, key_norm_(projected[0].view(shape)), projected[1].view(shape), described, true};
}

Tensor Layer::alive(const MemoryTable& table, const Tensor& next) const {
  if (table.rows() == 0) return at::ones({0}, at::kBool);
  at::NoGradGuard no_grad;
  return method_->keep(rows(table), next.index_select(0, table.sample()));
}

Columns Layer::tell(const MemoryTable& table) const {
  if (table.rows() == 0) return {};
  at::NoGradGuard no_grad;
  return method_->tell(rows(table));
}

void Layer::begin(MemoryTable& table, int64_t rows, bool training) const {
  if (rows == 0) return;
  at::NoGradGuard no_grad;
  const auto type = bfloat16() ? at::kFloat : query_.scalar_type();
  const Tensor zeros = at::zeros({table.samples(), rows, shape_.width}, type);
  const Tensor start = at::full({table.samples()}, -rows, at::kLong);
  table.append(start, columns(zeros, training));
}

void Layer::forget(MemoryTable& table, const Rows& rows, const Tensor& start, int64_t K, const BlockOptions& options,
                   LayerReport& report) const {
  at::NoGradGuard no_grad;
  table.detach();
  const bool exact = options.training || options.observe || method_->one_by_one();
  if (!exact && K == 1 && table.unsifted() * kNewShare < table.rows()) return;
  const Tensor mask = method_->keep(rows, (start + K).index_select(0, table.sample()));
  if (options.observe) {
    const Ages ages = method_->ages(rows);
    const Tensor sizes = memory_sizes(table, ages, start, K, options.lengths);
    report.time = table.time(), report.last = ages.last;
    report.memory_sum = sizes.sum().item<double>(), report.queries = sizes.numel();
    if (report.queries > 0) report.memory_max = sizes.max().item<double>();
    const Tensor first = start.index_select(0, table.sample()), recent = table.time() >= first;
    // Without the rows that were dead before the block and have yet to be released.
    const auto readable = at::logical_or(method_->keep(rows, first), recent).sum().item<double>();
    report.deleted = (readable - mask.sum().item<double>()) / readable;
    for (const auto& [name, values] : method_->tell(rows))
      report.told[name] = values.detach().masked_select(recent).view({table.samples(), K});
  }
  table.keep(mask);
}

Reading Layer::read(const Tensor& h, const Projected& own, const Tensor& start, const Tensor& position, Rows& rows,
                    const BlockOptions& options, const LayerDraws& draws) const {
  const int64_t B = h.size(0), K = h.size(1);
  // A dropped layer still remembers; what the method writes into its columns follows from reading.
  if (draws.dropped && method_->state({0}, h.options()).empty()) return {};
  at::AutoGradMode gradients(at::GradMode::is_enabled() && !draws.dropped);
  const Tensor x = options.training ? normed(h) : own.x;
  const Tensor q =
      options.training
          ? lapse::linear(x, query_, {.bfloat16 = options.bfloat16}).view({B, K, shape_.heads, shape_.head_dim})
          : own.query;
  Query query{x, query_norm_(q), start, position, options.lengths};
  query.training = options.training;
  query.uniform = draws.uniform;
  if (options.training && config_.dropout > 0) {
    query.dropout = config_.dropout;
    query.seed = at::full({1}, static_cast<int64_t>(draws.seed), at::kLong);
  }
  if (options.bfloat16 || bfloat16())
    for (Tensor* x : {&query.q, &query.position, &rows.key, &rows.value})
      if (x->defined()) *x = x->to(at::kBFloat16);
  return method_->read(query, rows);
}

Tensor Layer::finish(const Tensor& h, const Tensor& attended, const BlockOptions& options,
                     const LayerDraws& draws) const {
  const bool post = config_.norm == "post";
  const Tensor sum = h + lapse::linear(attended, out_, {.bfloat16 = options.bfloat16});
  const Tensor u = post ? norm1_(sum) : sum;
  const double dropout = options.training ? config_.dropout : 0;
  const Tensor more = feed_forward_(post ? u : norm2_(u), dropout, mix64(draws.seed), options.bfloat16);
  return post ? norm2_(u + more) : u + more;
}

Tensor Layer::finish_few(const Tensor& h, const Tensor& attended) const {
  const int64_t width = shape_.width, n = h.numel(), m = n / width;
  Scratch& scratch = Scratch::of_thread();
  scratch.release();
  auto *more = scratch.take<float>(n), *u = scratch.take<float>(n), *x = scratch.take<float>(n);
  const auto* from = h.const_data_ptr<float>();
  Tensor y = at::empty(h.sizes(), h.options());
  auto* to = y.mutable_data_ptr<float>();
  multiply_few_rows(attended.const_data_ptr<float>(), m, out_.size(1), {{out_, more}});
  if (config_.norm == "post") {
    norm1_.of_few(from, more, m, u);
    feed_forward_.of_few(u, m, more);
    norm2_.of_few(u, more, m, to);
  } else {
    std::transform(from, from + n, more, u, std::plus<>());
    norm2_.of_few(u, nullptr, m, x);
    feed_forward_.of_few(x, m, more);
    std::transform(u, u + n, more, to, std::plus<>());
  }
  return y;
}

Layer::Result Layer::forward(const Tensor& h, const Tensor& start, const Tensor& position, MemoryTable& table,
                             const BlockOptions& options, const LayerDraws& draws) {
  const int64_t K = h.size(1);
  const Projected own = options.training ? Projected() : project(h, /*query=*/true);
  table.append(start, columns(h, own, options.training));
  pool(table, start, K, options.training);
  Rows rows = this->rows(table, K, options.bfloat16);
  Result result{options.wanted(h), {}, {}};
  const Reading reading = read(h, own, start, position, rows, options, draws);
  for (const auto& [name, values] : reading.state) {
    table.replace(name, values);
    rows.described[name] = values;
  }
  if (!draws.dropped) {
    const Tensor attended = options.wanted(as(reading.out, h.scalar_type()).flatten(2));
    const bool few = !options.training && few_rows(result.h) && attended.is_contiguous();
    result.h = few ? finish_few(result.h, attended) : finish(result.h, attended, options, draws);
    result.cost = reading.cost;
  }
  forget(table, rows, start, K, options, result.report);
  return result;
}

}  // namespace lapse
