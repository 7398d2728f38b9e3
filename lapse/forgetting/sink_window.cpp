#include "lapse/forgetting/sink_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lapse/core/error.h"
#include "lapse/forgetting/pattern.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

class SinkWindow : public Pattern {
 public:
  SinkWindow(const ModelShape& shape, int64_t max_span, int64_t sinks, int64_t last)
      : Pattern(shape, max_span), sinks_(sinks), last_(std::min(last, max_span)) {}

 protected:
  at::Tensor last_age(const at::Tensor& time) const override {
    constexpr int64_t kForEver = std::numeric_limits<int64_t>::max() / 2;
    return at::where(time < sinks_, kForEver, last_);
  }

 private:
  int64_t sinks_, last_;
};

class SinkWindowOptions : public PatternOptions {
 public:
  std::string name() const override { return "sink_window"; }
  Fields fields() override {
    return {max_span_field(),
            field("sinks", sinks_, "the first rows of a stream, which stay for ever").in(0, 1 << 20).unit("rows"),
            field("window", window_, "how many of the newest rows a query reads").in(1, 1 << 22).unit("rows")};
  }
  Fields reading_fields() override {
    Fields fields = PatternOptions::reading_fields();
    fields.push_back(
        field("sinks", sinks_, "the first rows of a stream, which stay for ever").in(0, 1 << 20).unit("rows"));
    return fields;
  }
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t) const override {
    if (budget_ > 0 && budget_ <= sinks_)
      fail(fmt::format("--budget {}: the {} sinks leave no row for the window", budget_, sinks_));
    const int64_t window = budget_ > 0 ? budget_ - sinks_ : window_;
    return std::make_unique<SinkWindow>(shape, max_span_, sinks_, window_age(shape, window));
  }

 private:
  int64_t sinks_ = 4, window_ = 124;
};

}  // namespace

std::unique_ptr<MethodOptions> sink_window_options() { return std::make_unique<SinkWindowOptions>(); }

}  // namespace lapse
