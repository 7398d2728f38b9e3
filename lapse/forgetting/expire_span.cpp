#include "lapse/forgetting/expire_span.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/attention/expiry.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/logistic.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

struct Settings {
  int64_t max_span = 1024;  // L
  double ramp = 32;         // R
  double loss = 1e-6;       // alpha
  std::string loss_at = "ramp";
  double divisor = 1;  // c
  std::string divide = "input";
  double initial_fraction = 0.1;  // p
  bool random_drop = false;
  std::string initial_memory = "empty";
  int64_t evaluated_span = 0;
};

class ExpireSpan : public Method {
 public:
  ExpireSpan(const Settings& s, const ModelShape& shape) : s_(s), shape_(shape) {
    const double odds = std::log(s.initial_fraction / (1 - s.initial_fraction));
    weight_ = at::zeros({shape.width}).set_requires_grad(true);
    bias_ = at::full({1}, s.divide == "all" ? s.divisor * odds : odds).set_requires_grad(true);
  }

  NamedTensors parameters() override { return {{"span.weight", &weight_}, {"span.bias", &bias_}}; }

  // Eq. 3 (c = 1) and Eq. 8: e_i = L sigma((w x_i + b) / c).
  Columns describe(const Tensor& x) const override {
    const LogisticScale scale{.bound = static_cast<double>(s_.max_span),
                              .divisor = s_.divisor,
                              .bias = s_.divide == "all" ? 1 / s_.divisor : 1};
    return {{"span", logistic(x, weight_, bias_, scale)}};
  }

  Reading read(const Query& query, const Rows& rows) const override {
    RampOptions options = ramp_options(query, shape_);
    Tensor span = spans(rows.described);
    AttentionInputs inputs = ramp_inputs(query, rows);
    if (query.uniform < 1 && s_.random_drop) {
      span = span.clamp_max(query.uniform * s_.max_span);
      inputs.until = at::minimum(*inputs.until, ramp_until(rows.table.time(), span, s_.ramp));
    }
    options.row_span = span;
    options.ramp = s_.ramp;
    const auto y = ramp_attention(inputs, options);
    Reading reading{y.out};
    if (at::GradMode::is_enabled()) reading.cost = cost(query, rows, y.ramp_sum);
    return reading;
  }

  Tensor first(const RowView& rows) const override { return shifted(rows.time, shape_.min_age); }
  // While m = 1 + (e - a) / R > 0, in the operator's own arithmetic.
  Tensor until(const RowView& rows) const override { return ramp_until(rows.time, spans(rows.described), s_.ramp); }

  Columns tell(const Rows& rows) const override { return {{"span", spans(rows.described)}}; }

 private:
  // Eq. 7, mean over the batch: alpha / (R K) times r, which the operator sums over the ramp; or alpha / K times the
  // spans of the block's own rows. Either way a row's span gets the gradient alpha / K, once it has passed its ramp. K
  // is a sample's timesteps without padding.
  Tensor cost(const Query& query, const Rows& rows, const Tensor& ramp_sum) const {
    const bool on_ramp = s_.loss_at == "ramp";
    const int64_t block = query.q.size(1);
    Tensor sums = on_ramp ? ramp_sum : own_spans(query, rows);
    if (query.lengths.defined()) sums = sums * (block / query.lengths.clamp_min(1).to(sums.scalar_type()));
    return sums.mean() * (s_.loss / ((on_ramp ? s_.ramp : 1) * static_cast<double>(block)));
  }

  /// The spans of each sample's new rows, summed: [B].
  Tensor own_spans(const Query& query, const Rows& rows) const {
    const Tensor span = spans(rows.described), sample = rows.table.sample();
    const int64_t B = query.q.size(0), K = query.q.size(1);
    // Sums of lines, whose order does not depend on a GPU's threads.
    const Tensor places = places_of(rows.table.time() >= query.start.index_select(0, sample), B * K);
    Tensor own = span.index_select(0, places).view({B, K});
    if (query.lengths.defined())
      own = at::where(at::arange(K, query.lengths.options()) < query.lengths.unsqueeze(1), own, 0);
    return own.sum(1);
  }

  Tensor spans(const Columns& described) const {
    const Tensor& span = described.at("span");
    return s_.evaluated_span > 0 ? span.clamp_max(s_.evaluated_span) : span;
  }

  Settings s_;
  ModelShape shape_;
  Tensor weight_, bias_;
};

class ExpireSpanOptions : public MethodOptions {
 public:
  std::string name() const override { return "expire_span"; }

  Fields fields() override {
    return {
        field("max_span", s_.max_span, "L: the longest span").in(1, 1 << 24).unit("timesteps"),
        field("ramp", s_.ramp, "R: a memory fades out over this many timesteps after its span")
            .in(1, 1 << 20)
            .unit("timesteps"),
        field("loss", s_.loss, "alpha: weight of the loss that shortens spans (Eq. 7)").in(0, 1),
        field("loss_at", s_.loss_at,
              "when that loss presses on a span: while its memory is on the ramp; or once, when the memory is made, "
              "which the paper tried and found worse (4.2)")
            .one_of({"ramp", "creation"}),
        field("divisor", s_.divisor,
              "c: spans are L sigmoid(w x / c + b), or as divide says; 1 is Eq. 3. With more, such as R, they change "
              "slowly; with 1 they may fall to 0 before the model has learned to use what it remembers")
            .in(1e-3, 1 << 20),
        field("divide", s_.divide,
              "what c divides: w x only, as in the paper's code, or w x + b, as in its Eq. 8: then b moves slowly too, "
              "and spans fall less in the beginning")
            .one_of({"input", "all"})
            .used_if([this] { return s_.divisor != 1; }),
        field("initial_fraction", s_.initial_fraction, "p: spans begin at p L").in(1e-6, 1 - 1e-6),
        field("random_drop", s_.random_drop, "in training, cut all spans at u L, one u from U(0, 1) per block"),
        field("initial_memory", s_.initial_memory, "what a sequence starts from: nothing, or K zero vectors")
            .one_of({"empty", "zeros"}),
    };
  }

  Fields reading_fields() override {
    return {field("max_span", s_.evaluated_span, "cut spans at this many timesteps; 0: as trained")
                .in(0, static_cast<double>(s_.max_span))
                .unit("timesteps")};
  }

  bool draws_in_training() const override { return s_.random_drop; }
  int64_t longest(const ModelShape&) const override {
    return s_.max_span + static_cast<int64_t>(std::ceil(s_.ramp)) - 1;
  }
  int64_t positions(const ModelShape& shape) const override { return shape.block; }
  int64_t initial_rows(const ModelShape& shape) const override {
    return s_.initial_memory == "zeros" ? shape.block : 0;
  }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t, Random&) const override {
    return std::make_unique<ExpireSpan>(s_, shape);
  }

 private:
  Settings s_;
};

}  // namespace

std::unique_ptr<MethodOptions> expire_span_options() { return std::make_unique<ExpireSpanOptions>(); }

}  // namespace lapse
