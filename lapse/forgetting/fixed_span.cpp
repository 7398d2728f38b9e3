#include "lapse/forgetting/fixed_span.h"

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"

namespace lapse {
namespace {

using at::Tensor;

class FixedSpan : public Method {
 public:
  FixedSpan(int64_t span, const ModelShape& shape) : span_(span), shape_(shape) {}

  at::Tensor first(const RowView& rows) const override { return shifted(rows.time, shape_.min_age); }
  at::Tensor until(const RowView& rows) const override { return rows.time + span_ + 1; }

  Reading read(const Query& query, const Rows& rows) const override {
    return {ramp_attention(ramp_inputs(query, rows), ramp_options(query, shape_)).out};
  }

 private:
  int64_t span_;
  ModelShape shape_;
};

class FixedSpanOptions : public MethodOptions {
 public:
  std::string name() const override { return "fixed_span"; }

  Fields fields() override {
    return {field("max_span", max_span,
                  "L: how many of the newest timesteps a query reads, beside its own with model.attend_self; ages 1 "
                  "... L have a position "
                  "embedding")
                .in(1, 1 << 24)
                .unit("timesteps"),
            field("initial_memory", initial_memory, "what a sequence starts from: nothing, or L zero vectors")
                .one_of({"empty", "zeros"})};
  }

  Fields reading_fields() override {
    return {field("max_span", evaluated_span, "read at most this many of the newest timesteps; 0: as trained")
                .in(0, static_cast<double>(max_span))
                .unit("timesteps")};
  }

  int64_t longest(const ModelShape&) const override { return max_span; }
  int64_t positions(const ModelShape&) const override { return max_span; }
  int64_t initial_rows(const ModelShape&) const override { return initial_memory == "zeros" ? max_span : 0; }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t, Random&) const override {
    return std::make_unique<FixedSpan>(evaluated_span > 0 ? evaluated_span : max_span, shape);
  }

 private:
  int64_t max_span = 512, evaluated_span = 0;
  std::string initial_memory = "empty";
};

}  // namespace

std::unique_ptr<MethodOptions> fixed_span_options() { return std::make_unique<FixedSpanOptions>(); }

}  // namespace lapse
