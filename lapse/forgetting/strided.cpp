#include "lapse/forgetting/strided.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/forgetting/pattern.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

class Strided : public Pattern {
 public:
  Strided(const ModelShape& shape, int64_t window, int64_t stride, int64_t max_span)
      : Pattern(shape, max_span), window_(window), stride_(stride) {}

 protected:
  at::Tensor last_age(const at::Tensor& time) const override {
    const at::Tensor summary = at::remainder(time, stride_) == stride_ - 1;
    return at::where(summary, max_span_, std::min(window_age(window_), max_span_));
  }

 private:
  int64_t window_, stride_;
};

class StridedOptions : public PatternOptions {
 public:
  std::string name() const override { return "strided"; }
  Fields fields() override {
    return {
        max_span_field(),
        field("window", window_, "how many of the newest rows a query reads").in(1, 1 << 22).unit("rows"),
        field("stride", stride_, "of the older rows, up to age L, one in so many is read").in(1, 1 << 22).unit("rows")};
  }
  // Under a budget half is the window, and the stride is the least that leaves the other half for the summary rows of
  // the ages beyond it.
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t) const override {
    if (budget_ == 0) return std::make_unique<Strided>(shape, window_, stride_, max_span_);
    if (budget_ == 1) fail("--budget 1: strided attention needs one row for the window and one for the rest");
    const int64_t rest = budget_ / 2, window = budget_ - rest;
    const int64_t far = max_span_ - window_age(shape, window);
    return std::make_unique<Strided>(shape, window, std::max<int64_t>(1, (far + rest - 1) / rest), max_span_);
  }

 private:
  int64_t window_ = 64, stride_ = 8;
};

}  // namespace

std::unique_ptr<MethodOptions> strided_options() { return std::make_unique<StridedOptions>(); }

}  // namespace lapse
