#include "lapse/forgetting/eviction.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {

using at::Tensor;

namespace {

constexpr double kGone = -1e30;  // as a logit: weight 0 beside any other row

}  // namespace

Columns Eviction::state(at::IntArrayRef shape, const at::TensorOptions& real) const {
  if (!by_head_) return {{"score", at::zeros(shape, real)}};
  auto wide = shape.vec();
  wide.push_back(shape_.heads);
  return {{"score", at::zeros(wide, real)}, {"logit", at::zeros(wide, real)}};
}

Columns Eviction::tell(const Rows& rows) const {
  const Tensor& scores = rows.described.at("score");
  return {{"score", by_head_ ? scores.sum(1) : scores}};
}

Reading Eviction::read(const Query& query, const Rows& rows) const {
  RampOptions options = standard_options(query, shape_, max_age_);
  options.received = rows.stored == Stored::projections;
  if (options.received && by_head_) options.logit = rows.described.at("logit");
  const auto y = ramp_attention(ramp_inputs(query, rows), options);
  if (!options.received) return {y.out};
  Reading reading{y.out};
  reading.state["score"] = score(rows.described.at("score"), y.received);
  if (budget_ <= 0) return reading;
  rows.until.device().is_cpu() ? evict(rows, query.start, reading) : evict_there(rows, query.start, reading);
  return reading;
}

void Eviction::evict_there(const Rows& rows, const Tensor& now, Reading& reading) const {
  const MemoryTable& table = rows.table;
  const int64_t B = table.samples(), N = table.rows(), choosers = by_head_ ? shape_.heads : 1;
  int64_t longest = 0;
  for (int64_t b = 0; b < B; ++b) longest = std::max(longest, table.rows_of(b));
  // Each sample's rows, filled up to the longest: [B, R, choosers].
  const Tensor offsets = sent(table.offsets(), now.device()), first = offsets.narrow(0, 0, B);
  const Tensor place = at::arange(longest, offsets.options());
  const Tensor absent = place >= at::diff(offsets).unsqueeze(1);
  const Tensor row = (first.unsqueeze(1) + place).masked_fill(absent, 0).flatten();
  const auto padded = [&](const Tensor& x) { return x.index_select(0, row).view({B, longest, -1}); };
  const Tensor next = (now + 1).view({B, 1, 1}), ends = padded(rows.until.unsqueeze(1));
  // there: some later query may read the row, [B, R, 1]. gone: its chooser has dropped it; held: it has not, [B, R,
  // choosers]. A row leaves the table when all its choosers have dropped it.
  const Tensor there = at::logical_and(ends > next, at::logical_not(absent).unsqueeze(2));
  Tensor gone = by_head_ ? padded(rows.described.at("logit")) != 0 : at::zeros_like(there);
  const Tensor held = at::logical_and(there, at::logical_not(gone)), held_until = held.cumsum(1);
  const Tensor count = held.sum({1}, true), excess = (count - room()).clamp_min(0);
  // The least scores go, of equals the oldest.
  const Tensor may_go = at::logical_and(held, held_until <= at::maximum(excess, count - newest()));
  const Tensor score = padded(reading.state["score"].view({N, choosers}));
  const Tensor order =
      at::argsort(score.masked_fill(at::logical_not(may_go), std::numeric_limits<double>::infinity()), true, 1, false);
  const Tensor goes = at::zeros_like(gone).scatter(1, order, (place.view({1, -1, 1}) < excess).expand_as(order));
  gone = at::logical_or(gone, goes);
  const Tensor none = at::logical_and(there, gone.all(2, true));
  const Tensor sample = table.sample();
  const Tensor packed = sample * longest + at::arange(N, offsets.options()) - first.index_select(0, sample);
  const auto of_rows = [&](const Tensor& x) { return x.flatten(0, 1).index_select(0, packed); };
  reading.until = of_rows(at::where(none, next, ends)).squeeze(1);
  if (by_head_) reading.state["logit"] = of_rows(at::zeros_like(score).masked_fill(gone, kGone));
}

void Eviction::evict(const Rows& rows, const Tensor& now, Reading& reading) const {
  const int64_t choosers = by_head_ ? shape_.heads : 1, room = this->room(), newest = this->newest();
  const Tensor scores = reading.state["score"].to(at::kDouble).contiguous(), start = now.contiguous();
  const auto copy = [](const Tensor& x, at::ScalarType type) { return x.to(type, false, true).contiguous(); };
  const Tensor until = copy(rows.until, at::kLong);
  const Tensor logit =
      by_head_ ? copy(rows.described.at("logit"), at::kDouble) : at::zeros({until.numel()}, at::kDouble);
  const auto* score = scores.const_data_ptr<double>();
  auto* ends = until.mutable_data_ptr<int64_t>();
  auto* gone = logit.mutable_data_ptr<double>();  // [N, choosers]: 0 or kGone
  std::vector<int64_t> held;                      // by one chooser: places in both
  for (int64_t b = 0; b < rows.table.samples(); ++b) {
    const int64_t next = start.const_data_ptr<int64_t>()[b] + 1, begin = rows.table.first_row(b),
                  end = rows.table.first_row(b + 1);
    for (int64_t c = 0; c < choosers; ++c) {
      held.clear();
      for (int64_t i = begin; i < end; ++i)
        if (const int64_t place = i * choosers + c; ends[i] > next && gone[place] == 0) held.push_back(place);
      const auto excess = static_cast<int64_t>(held.size()) - room;
      if (excess <= 0) continue;
      held.resize(std::max(excess, static_cast<int64_t>(held.size()) - newest));
      for (int64_t i = 0; i < excess; ++i) {  // the least score goes, of equals the oldest
        const auto least = std::ranges::min_element(held, {}, [&](int64_t place) { return score[place]; });
        gone[*least] = kGone;
        held.erase(least);
      }
    }
    for (int64_t i = begin; i < end; ++i)
      if (ends[i] > next &&
          std::all_of(gone + i * choosers, gone + (i + 1) * choosers, [](double x) { return x != 0; }))
        ends[i] = next;
  }
  reading.until = until;
  if (by_head_) reading.state["logit"] = logit.to(rows.described.at("logit").options());
}

namespace {

class EvictionOptions : public PatternOptions {
 public:
  using Make = std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)>;
  EvictionOptions(std::string name, Chooses chooses, Make make)
      : name_(std::move(name)), who_(chooses == Chooses::head ? "head" : "layer"), make_(std::move(make)) {}

  std::string name() const override { return name_; }
  Fields fields() override {
    return {max_span_field(),
            field("budget", configured_,
                  fmt::format("rows that every {} holds outside training, the current one included", who_))
                .in(1, 1 << 24)
                .unit("rows")};
  }
  Fields reading_fields() override { return {budget_field(who_)}; }
  // Of the rows that the model starts from in training, those that the first query may hold.
  int64_t initial_rows(const ModelShape& shape) const override {
    return std::min(PatternOptions::initial_rows(shape), room_beside(as_read(shape), budget_or(configured_)));
  }
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t) const override {
    return make_(shape, budget_or(configured_), max_span_);
  }

 private:
  std::string name_, who_;
  Make make_;
  int64_t configured_ = 128;
};

}  // namespace

std::unique_ptr<MethodOptions> eviction_options(
    const std::string& name, Chooses chooses,
    std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)> make) {
  return std::make_unique<EvictionOptions>(name, chooses, std::move(make));
}

}  // namespace lapse
