#include "lapse/forgetting/fixed_span.h"

#include <ATen/ATen.h>

#include "lapse/core/error.h"
#include "lapse/forgetting/golden_value.h"
#include "lapse/ops/ramp_attention.h"

namespace lapse {
namespace {

using at::Tensor;

class FixedSpan : public Method {
 public:
  explicit FixedSpan(int64_t span) : span_(span) {}

  Reading read(const Query& query, const Rows& rows) const override {
    RampOptions options;
    options.position = query.position;
    options.max_age = span_;
    options.dropout = query.dropout;
    if (query.dropout > 0) options.seed = query.seed;
    const auto& table = rows.table;
    return {ramp_attention({query.q, rows.key, rows.value, table.offsets(), query.start, table.time()}, options).out,
            {}};
  }

  Tensor last_age(const Rows& rows) const override { return at::full_like(rows.table.time(), span_); }

 private:
  int64_t span_;
};

class FixedSpanOptions : public MethodOptions {
 public:
  std::string name() const override { return "fixed_span"; }

  Fields fields() override {
    return {field("max_span", max_span,
                  "L: how many of the newest timesteps a query reads; ages 1 ... L have a position "
                  "embedding")
                .in(1, 1 << 24)
                .unit("timesteps"),
            field("initial_memory", initial_memory, "what a sequence starts from: nothing, or L zero vectors")
                .one_of({"empty", "zeros"})};
  }

  Fields evaluation_fields() override {
    return {field("max_span", evaluated_span, "read at most this many of the newest timesteps; 0: as trained")
                .in(0, static_cast<double>(max_span))
                .unit("timesteps")};
  }

  int64_t positions(const ModelShape&) const override { return max_span; }
  int64_t initial_rows(const ModelShape&) const override { return initial_memory == "zeros" ? max_span : 0; }
  std::unique_ptr<Method> make(const ModelShape&, Random&) const override {
    return std::make_unique<FixedSpan>(evaluated_span > 0 ? evaluated_span : max_span);
  }

  void from_golden(const std::map<std::string, std::string>& metadata) override {
    max_span = golden_value<int64_t>(metadata, "attn_lim");
    initial_memory = "zeros";
  }

 private:
  int64_t max_span = 512, evaluated_span = 0;
  std::string initial_memory = "empty";
};

}  // namespace

std::unique_ptr<MethodOptions> fixed_span_options() { return std::make_unique<FixedSpanOptions>(); }

}  // namespace lapse
