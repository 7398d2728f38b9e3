#include "lapse/model/layer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "lapse/model/initialise.h"
#include "lapse/ops/linear.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr double kNormEpsilon = 1e-5;
// Outside training dead rows are skipped by attention anyway. Token by token they are looked for once this share of the
// table is new, so that a stream that loses one row per token does not copy its memory at every token.
constexpr int64_t kNewShare = 8;

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kNormEpsilon);
}

/// Zeroes each element with probability p and scales the others by 1 / (1 - p). Of the seed alone, not of libtorch's
/// global state.
Tensor dropout(const Tensor& x, double p, uint64_t seed) {
  const Tensor keep = at::empty_like(x, x.options().requires_grad(false));
  keep.bernoulli_(1 - p, at::detail::createCPUGenerator(seed)).div_(1 - p);
  return x * keep;
}

/// |C_t| of each query: [B, K]. A row is readable at times time + 1 ... time + last_age.
Tensor memory_sizes(const MemoryTable& table, const Tensor& last_age, const Tensor& start, int64_t K) {
  const Tensor sample = table.sample();
  const Tensor first = table.time() + 1 - start.index_select(0, sample);  // relative to the block
  const Tensor enter = first.clamp(0, K);
  // last_age may be "for ever": clamp before adding.
  const Tensor leave = at::maximum((first + last_age.clamp_max(int64_t{1} << 40)).clamp(0, K), enter);
  const int64_t cells = table.samples() * (K + 1);
  const Tensor change =
      at::bincount(sample * (K + 1) + enter, {}, cells) - at::bincount(sample * (K + 1) + leave, {}, cells);
  return change.view({table.samples(), K + 1}).cumsum(1).narrow(1, 0, K);
}

}  // namespace

Layer::Layer(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape, Random& random)
    : config_(config), shape_(shape), method_(method.make(shape, random)) {
  const int64_t w = config.width, inner = shape.heads * shape.head_dim, ff = config.feed_forward;
  query_ = linear_weight(inner, w, config.initialisation, random);
  key_ = linear_weight(inner, w, config.initialisation, random);
  value_ = linear_weight(inner, w, config.initialisation, random);
  out_ = linear_weight(w, inner, config.initialisation, random);
  norm1_weight_ = constant_parameter({w}, 1), norm1_bias_ = constant_parameter({w}, 0);
  norm2_weight_ = constant_parameter({w}, 1), norm2_bias_ = constant_parameter({w}, 0);
  ff1_weight_ = linear_weight(ff, w, config.initialisation, random);
  ff1_bias_ = uniform_parameter({ff}, 1 / std::sqrt(static_cast<double>(w)), random);
  ff2_weight_ = linear_weight(w, ff, config.initialisation, random);
  ff2_bias_ = uniform_parameter({w}, 1 / std::sqrt(static_cast<double>(ff)), random);
  if (config.norm == "pre")
    for (Tensor* x : {&out_, &ff2_weight_, &ff2_bias_}) x->detach().div_(std::sqrt(2.0 * config.layers));
}

NamedTensors Layer::parameters() {
  NamedTensors all = {{"query", &query_},
                      {"key", &key_},
                      {"value", &value_},
                      {"out", &out_},
                      {"norm1.weight", &norm1_weight_},
                      {"norm1.bias", &norm1_bias_},
                      {"ff1.weight", &ff1_weight_},
                      {"ff1.bias", &ff1_bias_},
                      {"ff2.weight", &ff2_weight_},
                      {"ff2.bias", &ff2_bias_},
                      {"norm2.weight", &norm2_weight_},
                      {"norm2.bias", &norm2_bias_}};
  for (auto& parameter : method_->parameters()) all.push_back(parameter);
  return all;
}

Tensor Layer::normed(const Tensor& h) const {
  return config_.norm == "pre" ? layer_norm(h, norm1_weight_, norm1_bias_) : h;
}

Columns Layer::cached(const Tensor& h) const {
  const Tensor x = normed(h);
  const auto B = h.size(0), K = h.size(1);
  Columns columns;
  for (auto& [name, values] : method_->describe(x.reshape({B * K, -1}))) {
    auto shape = values.sizes().vec();
    shape[0] = K;
    shape.insert(shape.begin(), B);
    columns[name] = values.view(shape);
  }
  const std::vector<int64_t> shape = {B, K, shape_.heads, shape_.head_dim};
  const auto projected = lapse::linear(x, {key_, value_});
  columns["key"] = projected[0].view(shape);
  columns["value"] = projected[1].view(shape);
  return columns;
}

Rows Layer::rows(const MemoryTable& table, int64_t fresh, bool bfloat16) const {
  const auto& columns = table.columns();
  if (const auto hidden = columns.find("hidden"); hidden != columns.end()) {
    const Tensor x = normed(hidden->second);
    const std::vector<int64_t> shape = {table.rows(), shape_.heads, shape_.head_dim};
    LinearOptions options{.bfloat16 = bfloat16};
    if (config_.norm == "post" && fresh > 0)  // else norm1 learns from all rows
      for (int64_t b = 0; b < table.samples(); ++b) {
        const int64_t end = table.first_row(b + 1);
        options.gradient_rows.emplace_back(end - fresh, end);
      }
    const auto projected = lapse::linear(x, {key_, value_}, options);
    return {table, projected[0].view(shape), projected[1].view(shape), method_->describe(x)};
  }
  Columns described = columns;
  for (const char* own : {"time", "key", "value"}) described.erase(own);
  return {table, table.column("key"), table.column("value"), std::move(described)};
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
  const Tensor zeros = at::zeros({table.samples(), rows, shape_.width}, query_.options());
  const Tensor start = at::full({table.samples()}, -rows, at::kLong);
  table.append(start, training ? Columns{{"hidden", zeros}} : cached(zeros));
}

Tensor Layer::feed_forward(const Tensor& u, const BlockOptions& options, uint64_t seed) const {
  const Tensor x = config_.norm == "pre" ? layer_norm(u, norm2_weight_, norm2_bias_) : u;
  Tensor inner = lapse::linear(x, ff1_weight_, {.bias = ff1_bias_, .relu = true, .bfloat16 = options.bfloat16});
  if (options.training && config_.dropout > 0) inner = dropout(inner, config_.dropout, seed);
  const Tensor sum = u + lapse::linear(inner, ff2_weight_, {.bias = ff2_bias_, .bfloat16 = options.bfloat16});
  return config_.norm == "pre" ? sum : layer_norm(sum, norm2_weight_, norm2_bias_);
}

void Layer::forget(MemoryTable& table, const Rows& rows, const Tensor& start, int64_t K, const BlockOptions& options,
                   LayerReport& report) const {
  at::NoGradGuard no_grad;
  table.detach();
  if (!options.training && !options.observe && K == 1 && table.unsifted() * kNewShare < table.rows()) return;
  const Tensor mask = method_->keep(rows, (start + K).index_select(0, table.sample()));
  if (options.observe) {
    const Tensor sizes = memory_sizes(table, method_->last_age(rows), start, K);
    report.memory_mean = sizes.to(at::kDouble).mean().item<double>();
    report.memory_max = sizes.max().item<double>();
    const Tensor first = start.index_select(0, table.sample()), recent = table.time() >= first;
    // Without the rows that were dead before the block and have yet to be released.
    const auto readable = at::logical_or(method_->keep(rows, first), recent).sum().item<double>();
    report.deleted = (readable - mask.sum().item<double>()) / readable;
    for (const auto& [name, values] : method_->tell(rows))
      report.told[name] = values.detach().masked_select(recent).view({table.samples(), K});
  }
  table.keep(mask);
}

Layer::Result Layer::forward(const Tensor& h, const Tensor& start, const Tensor& position, MemoryTable& table,
                             const BlockOptions& options, const LayerDraws& draws) {
  const int64_t B = h.size(0), K = h.size(1);
  table.append(start, options.training ? Columns{{"hidden", h}} : cached(h));
  Rows rows = this->rows(table, K, options.bfloat16);
  Result result{h, {}, {}};
  if (!draws.dropped) {
    const LinearOptions product{.bfloat16 = options.bfloat16};
    Query query{lapse::linear(normed(h), query_, product).view({B, K, shape_.heads, shape_.head_dim}), start, position};
    query.training = options.training;
    query.uniform = draws.uniform;
    if (options.training && config_.dropout > 0) {
      query.dropout = config_.dropout;
      query.seed = at::full({1}, static_cast<int64_t>(draws.seed), at::kLong);
    }
    if (options.bfloat16)
      for (Tensor* x : {&query.q, &query.position, &rows.key, &rows.value}) *x = x->to(at::kBFloat16);
    Reading reading = method_->read(query, rows);
    const Tensor out = reading.out.to(h.scalar_type()).reshape({B, K, -1});
    const Tensor sum = h + lapse::linear(out, out_, product);
    const Tensor u = config_.norm == "pre" ? sum : layer_norm(sum, norm1_weight_, norm1_bias_);
    result.h = feed_forward(u, options, mix64(draws.seed));
    result.cost = reading.cost;
  }
  forget(table, rows, start, K, options, result.report);
  return result;
}

}  // namespace lapse
