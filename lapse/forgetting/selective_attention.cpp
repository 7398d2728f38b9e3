#include "lapse/forgetting/selective_attention.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lapse/core/error.h"
#include "lapse/core/linear_weights.h"
#include "lapse/forgetting/budgets.h"
#include "lapse/memory/samples.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_attention.h"
#include "lapse/ops/dense/linear.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr double kNormEpsilon = 1e-5;

struct Settings {
  int64_t max_span = 512;
  double memory_loss = 0;  // epsilon
  double cap = 1;          // tau
  std::vector<int64_t> budgets;
  bool shift = true, mask_first = false, mask_self = false, relu = true, separate = false;
  int64_t evaluated_budget = 0;
};

class SelectiveAttention : public Method, public BudgetedLayer {
 public:
  SelectiveAttention(const Settings& s, const ModelShape& shape, int64_t layer, Random& random) : s_(s), shape_(shape) {
    budget_ = s.evaluated_budget > 0 ? s.evaluated_budget : s.budgets.empty() ? 0 : s.budgets[layer];
    if (!s.separate) return;
    select_query_ = fresh(shape, random), select_key_ = fresh(shape, random);
    for (Tensor* weight : {&select_query_, &select_key_}) weight->set_requires_grad(true);
    if (!shape.normed_heads) return;
    query_scale_ = at::ones({shape.head_dim}).set_requires_grad(true);
    key_scale_ = at::ones({shape.head_dim}).set_requires_grad(true);
  }

  NamedTensors parameters() override {
    NamedTensors all;
    if (select_query_.defined()) all = {{"select.query", &select_query_}, {"select.key", &select_key_}};
    if (query_scale_.defined())
      all.insert(all.end(), {{"select.query_norm", &query_scale_}, {"select.key_norm", &key_scale_}});
    return all;
  }

  Columns describe(const Tensor& x) const override {
    if (!s_.separate) return {};
    return {{"select_key", selected(x, select_key_, key_scale_)}};
  }

  void set_budget(int64_t rows) override { budget_ = rows; }

  // F of each row so far.
  Columns state(at::IntArrayRef shape, const at::TensorOptions& real) const override {
    return {{"masking", at::zeros(shape, real)}};
  }

  // Tokens attend themselves, whatever the base model does.
  Tensor first(const RowView& rows) const override { return rows.time; }
  Tensor until(const RowView& rows) const override { return rows.time + s_.max_span; }

  Reading read(const Query& query, const Rows& rows) const override {
    AttentionInputs inputs = ramp_inputs(query, rows);
    const SelectiveOptions options = this->options(query, rows);
    Reading reading;
    if (prunes(rows)) {
      const Tensor pruned = selective_prune(inputs, options, budget_);
      // What padding alone ends is there for the sample's next tokens.
      reading.until = at::where(pruned < *inputs.until, pruned, rows.until);
      inputs.until = pruned;
    }
    const auto y = selective_attention(inputs, options);
    reading.out = y.out;
    reading.state["masking"] = y.masking;
    if (s_.memory_loss > 0 && at::GradMode::is_enabled()) reading.cost = cost(y.memory, query, rows);
    return reading;
  }

  Columns tell(const Rows& rows) const override { return {{"masking", rows.described.at("masking")}}; }
  Columns tell_pairs(const Query& query, const Rows& rows) const override {
    AttentionInputs inputs = ramp_inputs(query, rows);
    const SelectiveOptions options = this->options(query, rows);
    if (prunes(rows)) inputs.until = selective_prune(inputs, options, budget_);
    return {{"masking", selective_masking(inputs, options)}};
  }

 private:
  bool prunes(const Rows& rows) const { return budget_ > 0 && rows.stored == Stored::projections; }

  static Tensor fresh(const ModelShape& shape, Random& random) {  // [D, width]
    return at::tensor(linear_weights(shape.head_dim, shape.width, shape.initialisation, random))
        .view({shape.head_dim, shape.width});
  }

  static Tensor selected(const Tensor& x, const Tensor& weight, const Tensor& scale) {
    const Tensor y = lapse::linear(x, weight);
    return scale.defined() ? at::rms_norm(y, {y.size(-1)}, scale, kNormEpsilon) : y;
  }

  SelectiveOptions options(const Query& query, const Rows& rows) const {
    SelectiveOptions options;
    options.masking = rows.described.at("masking");
    set_common(options, query, shape_);
    if (s_.separate) {
      options.select_q = selected(query.x, select_query_, query_scale_).to(query.q.scalar_type());
      options.select_k = rows.described.at("select_key").to(query.q.scalar_type());
    }
    options.first = is_kind(rows.table.kind(), RowKind::first);
    options.cap = s_.cap;
    options.shift = s_.shift, options.relu = s_.relu;
    options.mask_first = s_.mask_first, options.mask_self = s_.mask_self;
    return options;
  }

  /// Section 4: epsilon / (layers n) max_t M_t, the mean over the batch. n: the block's tokens that are no padding, of
  /// a stream with memory as many as its last query reads, if these are more.
  Tensor cost(const Tensor& memory, const Query& query, const Rows& rows) const {
    const int64_t K = query.q.size(1);
    Tensor last = query.start + K - 1, held = memory;
    Tensor n = at::full_like(last, K);
    if (query.lengths.defined()) {
      last = query.start + query.lengths - 1, n = query.lengths;
      held = memory.masked_fill(at::arange(K, last.options()) >= query.lengths.unsqueeze(1),
                                -std::numeric_limits<double>::infinity());
    }
    const Tensor sample = rows.table.sample(), now = of_rows(rows.table, last);
    const Tensor read = at::logical_and(rows.table.time() <= now, rows.until > now);
    n = at::maximum(n, at::zeros_like(last).index_add(0, sample, read.to(at::kLong)));
    const Tensor share = std::get<0>(held.max(1)) / n.clamp_min(1).to(memory.scalar_type());
    return share.mean() * (s_.memory_loss / static_cast<double>(shape_.layers));
  }

  Settings s_;
  ModelShape shape_;
  int64_t budget_;
  Tensor select_query_, select_key_;  // W_q', W_k' [D, width]; undefined unless separate
  Tensor query_scale_, key_scale_;
};

class SelectiveAttentionOptions : public MethodOptions, public BudgetOptions {
 public:
  std::string name() const override { return "selective_attention"; }

  Fields fields() override {
    return {
        field("max_span", s_.max_span,
              "how many of the newest timesteps a query reads, itself included; below train.block it cuts windows "
              "(data.windows), too")
            .in(1, 1 << 24)
            .unit("timesteps"),
        field("memory_loss", s_.memory_loss, "epsilon: weight of the loss that shortens memory; the paper: 0.1, or 0")
            .in(0, 1e3),
        field("cap", s_.cap, "tau of that loss: a token masked by so much counts as forgotten")
            .in(1e-6, 1e6)
            .used_if([this] { return s_.memory_loss > 0; }),
        field("budgets", s_.budgets,
              "how many tokens each layer holds outside training, the current one included; [] is "
              "no limit. `lapse prune` finds them")
            .in(1, 1 << 24)
            .unit("tokens"),
        field("shift", s_.shift,
              "false: what a token masks is masked for itself too, not only for later tokens (ablation)"),
        field("mask_first", s_.mask_first, "true: the stream's first token, BOS, can be masked (ablation)"),
        field("mask_self", s_.mask_self, "true: a token can mask itself (ablation)"),
        field("relu", s_.relu, "false: masking may be negative; diverges in the paper (ablation)"),
        field("separate", s_.separate,
              "true: masking comes from a bilinear form of its own, not from head 0 (ablation)"),
    };
  }

  Fields reading_fields() override {
    return {field("budget", s_.evaluated_budget, "tokens that every layer holds; 0: as the run has it")
                .in(0, 1 << 24)
                .unit("tokens")};
  }

  std::vector<int64_t>& budgets() override { return s_.budgets; }

  void check(const ModelShape& shape) const override {
    if (!s_.budgets.empty() && static_cast<int64_t>(s_.budgets.size()) != shape.layers)
      fail(fmt::format("selective_attention.budgets has {} numbers, but there are {} layers", s_.budgets.size(),
                       shape.layers));
  }

  int64_t longest(const ModelShape&) const override { return s_.max_span - 1; }
  int64_t least_age(const ModelShape&) const override { return 0; }
  int64_t positions(const ModelShape&) const override { return s_.max_span - 1; }
  int64_t initial_rows(const ModelShape&) const override { return 0; }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t layer, Random& random) const override {
    return std::make_unique<SelectiveAttention>(s_, shape, layer, random);
  }

 private:
  Settings s_;
};

}  // namespace

std::unique_ptr<MethodOptions> selective_attention_options() { return std::make_unique<SelectiveAttentionOptions>(); }

}  // namespace lapse
