#include "lapse/forgetting/adaptive_span.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {
namespace {

using at::Tensor;

struct Settings {
  int64_t max_span = 1024;  // L
  double ramp = 32;         // R
  double loss = 1e-6;       // alpha
  double initial_fraction = 0;
  bool per_layer = false;
  int64_t trim_step = 64;
  std::string initial_memory = "empty";
  int64_t evaluated_span = 0;
};

class AdaptiveSpan : public Method {
 public:
  AdaptiveSpan(const Settings& s, const ModelShape& shape) : s_(s), shape_(shape) {
    fraction_ = at::full({s.per_layer ? 1 : shape.heads}, s.initial_fraction).set_requires_grad(true);
  }

  NamedTensors parameters() override { return {{"span.fraction", &fraction_}}; }

  void after_update() override {
    at::NoGradGuard no_grad;
    fraction_.clamp_(0, 1);
  }

  // m = clamp((z L - a + 1) / R + 1, 0, 1): a ramp after z L + 1.
  Reading read(const Query& query, const Rows& rows) const override {
    RampOptions options = ramp_options(query, shape_);
    options.head_span = spans() + 1;
    options.ramp = s_.ramp;
    Reading reading{ramp_attention(ramp_inputs(query, rows), options).out};
    if (at::GradMode::is_enabled()) reading.cost = fraction_.mean() * (s_.loss * s_.max_span);
    return reading;
  }

  Tensor first(const RowView& rows) const override { return shifted(rows.time, shape_.min_age); }
  Tensor until(const RowView& rows) const override { return rows.time + (s_.max_span + 1) - trimmed(); }
  // Spans move between the updates of training, by a step at most.
  Tensor released(const Tensor& until, Stored stored) const override {
    return stored == Stored::inputs ? until + trimmed().clamp_max(s_.trim_step) : until;
  }
  // m = 0 for the longest head, too.
  Tensor weightless_from(const Rows& rows) const override {
    const Tensor last = (longest().to(at::kDouble) + 1 + s_.ramp).ceil().to(at::kLong);
    return at::minimum(rows.until, rows.table.time() + last);
  }

  Columns tell(const Rows& rows) const override {
    return {{"span", longest().expand(rows.table.time().sizes()).contiguous()}};
  }

 private:
  /// z L of each head: [H].
  Tensor spans() const {
    const Tensor span = fraction_.expand({shape_.heads}) * s_.max_span;
    return s_.evaluated_span > 0 ? span.clamp_max(s_.evaluated_span) : span;
  }
  Tensor longest() const {
    at::NoGradGuard no_grad;
    return spans().max();
  }
  /// How many of the ages up to L no head needs, in steps, so that shapes seldom change: a number on the model's
  /// device, so that the host does not wait for it. On the CPU, where it need not, one operator costs less than seven.
  Tensor trimmed() const {
    const Tensor span = longest();
    const int64_t L = s_.max_span, step = s_.trim_step;
    if (span.is_cpu()) {
      const auto needed = static_cast<int64_t>(std::ceil(span.item<double>() + s_.ramp));
      return at::scalar_tensor(std::clamp<int64_t>(L - needed, 0, L - 1) / step * step, at::kLong);
    }
    const Tensor needed = (span.to(at::kDouble) + s_.ramp).ceil().to(at::kLong);
    return at::floor_divide((L - needed).clamp(0, L - 1), step) * step;
  }

  Settings s_;
  ModelShape shape_;
  Tensor fraction_;  // z: [H], or [1] for all heads
};

class AdaptiveSpanOptions : public MethodOptions {
 public:
  std::string name() const override { return "adaptive_span"; }

  Fields fields() override {
    return {
        field("max_span", s_.max_span, "L: the longest span; ages 1 ... L have a position embedding")
            .in(1, 1 << 24)
            .unit("timesteps"),
        field("ramp", s_.ramp, "R: a head's weights fade out over this many timesteps after its span")
            .in(1, 1 << 20)
            .unit("timesteps"),
        field("loss", s_.loss, "alpha: weight of the loss L mean(z) that shortens spans").in(0, 1),
        field("initial_fraction", s_.initial_fraction, "z: spans begin at z L").in(0, 1),
        field("per_layer", s_.per_layer, "one span for all heads of a layer"),
        field("trim_step", s_.trim_step,
              "the cache is cut in steps of this many timesteps, and keeps one step more in "
              "training")
            .in(1, 1 << 20)
            .unit("timesteps"),
        field("initial_memory", s_.initial_memory, "what a sequence starts from: nothing, or L zero vectors")
            .one_of({"empty", "zeros"}),
    };
  }

  Fields reading_fields() override {
    return {field("max_span", s_.evaluated_span, "cut spans at this many timesteps; 0: as trained")
                .in(0, static_cast<double>(s_.max_span))
                .unit("timesteps")};
  }

  int64_t longest(const ModelShape&) const override { return s_.max_span; }
  int64_t positions(const ModelShape&) const override { return s_.max_span; }
  int64_t initial_rows(const ModelShape&) const override { return s_.initial_memory == "zeros" ? s_.max_span : 0; }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t, Random&) const override {
    return std::make_unique<AdaptiveSpan>(s_, shape);
  }

 private:
  Settings s_;
};

}  // namespace

std::unique_ptr<MethodOptions> adaptive_span_options() { return std::make_unique<AdaptiveSpanOptions>(); }

}  // namespace lapse
