#include "lapse/forgetting/sink_window.h"

#include <ATen/ops/cummax.h>
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

  at::Tensor until_among(const Rows& rows) const override {
    if (sinks_ == 0 || rows.until.numel() == 0) return rows.until;
    const at::Tensor& time = rows.table.time();
    if (time.is_cpu() && time.is_contiguous() && rows.table.kind().is_contiguous()) return row_by_row(rows);
    const at::Tensor age = time - begin(rows.table), start = is_kind(rows.table.kind(), RowKind::start);
    const at::Tensor is_sink = at::logical_and(at::logical_and(age >= 0, age < sinks_), at::logical_not(start));
    return at::minimum(rows.until, at::where(is_sink, kForEver, time + (last_ + 1)));
  }

 protected:
  // Any row may be a sink: those of a block come without the rows before them.
  at::Tensor last_age(const at::Tensor& time) const override { return at::full_like(time, sinks_ > 0 ? kFar : last_); }

 private:
  static constexpr int64_t kForEver = std::numeric_limits<int64_t>::max(), kFar = kForEver / 2;

  /// The same without a dozen operators, which a token would wait for.
  at::Tensor row_by_row(const Rows& rows) const {
    at::Tensor until = rows.until.clone(at::MemoryFormat::Contiguous);
    const auto* time = rows.table.time().const_data_ptr<int64_t>();
    const auto* kind = rows.table.kind().const_data_ptr<uint8_t>();
    auto* ends = until.mutable_data_ptr<int64_t>();
    int64_t begin = 0;
    for (int64_t i = 0, n = until.numel(); i < n; ++i) {
      if (kind[i] == static_cast<uint8_t>(RowKind::first)) begin = time[i];
      const bool is_sink = time[i] >= begin && time[i] - begin < sinks_;  // rows that a stream starts from are none
      if (!is_sink) ends[i] = std::min(ends[i], time[i] + last_ + 1);
    }
    return until;
  }

  /// When each row's stream or episode began: [N]. Its first row is a sink, and so in the table.
  static at::Tensor begin(const MemoryTable& table) {
    const at::Tensor& time = table.time();
    const at::Tensor first = at::arange(time.size(0), time.options()) * is_kind(table.kind(), RowKind::first);
    return time.index_select(0, std::get<0>(at::cummax(first, 0)));
  }

  int64_t sinks_, last_;
};

class SinkWindowOptions : public PatternOptions {
 public:
  std::string name() const override { return "sink_window"; }
  Fields fields() override {
    return {max_span_field(),
            field("sinks", sinks_, "the first rows of a stream or episode, which stay for ever")
                .in(0, 1 << 20)
                .unit("rows"),
            field("window", window_, "how many of the newest rows a query reads").in(1, 1 << 22).unit("rows")};
  }
  Fields reading_fields() override {
    Fields fields = PatternOptions::reading_fields();
    fields.push_back(field("sinks", sinks_,
                           "the first rows of a stream or episode, which stay for ever; default: as the run's "
                           "configuration says")
                         .in(0, 1 << 20)
                         .unit("rows"));
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
